"""Functions of the Snakefile: inputs of rules, targets, and the shell of jobs. Imports no torch."""
