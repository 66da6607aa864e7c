"""Interatomic potentials: base class, training task, conversion, and ranges of training data."""
