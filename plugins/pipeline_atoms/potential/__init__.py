"""Interatomic potentials: their base class, their task, and what belongs to their training."""
