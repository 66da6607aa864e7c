"""Matrices of structures: their sources, their blocks, and the samples made of them."""
