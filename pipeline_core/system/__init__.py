"""Resources of a process: memory, other processes, worker processes, locks, random seeds."""
