"""Lattices, actions, ensembles and their files."""
