"""Interatomic potentials: the shared parts of atomistic models, from raw files to dynamics."""
