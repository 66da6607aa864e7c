"""Matrices by which orbitals change with vectors, by e3nn."""

import torch
from e3nn import o3

PERMUTATION = [1, 2, 0]  # of x, y, z, to the vectors of e3nn


def make_orbital_matrix(R, basis):
    """Return the matrix of the common orbitals for a rotation, or one with a reflection."""
    of_vectors = R[PERMUTATION][:, PERMUTATION]
    shells = (o3.Irrep(n, (-1) ** n) for n in basis.common)
    return torch.block_diag(*(shell.D_from_matrix(of_vectors) for shell in shells))
