"""Experiments, datasets and runs: their sections, their files, and what belongs together."""
