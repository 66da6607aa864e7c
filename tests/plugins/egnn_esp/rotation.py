"""Rotated and mirrored structures: H' = D H Dᵀ with the Wigner matrices of the shells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from e3nn import o3
from scipy.linalg import block_diag

from pipeline_egnn_esp.data.matrices import BlockMatrix, Quantity
from pipeline_kernels.equivariant.clebsch_gordan import clebsch_gordan
from pipeline_kernels.equivariant.wigner import PERMUTATION


def compute_wigner_matrix(rotation: np.ndarray, shells: Sequence[int]) -> np.ndarray:
    """Return the matrix that turns the orbitals of shells, for an orthogonal matrix (3, 3).

    Each degree is made of the one below and degree 1 by coupling. Oracle: e3nn, with fewer digits,
    as it goes through angles.
    """
    first = rotation[np.ix_(PERMUTATION, PERMUTATION)]
    matrices = [np.ones((1, 1)), first]
    for degree in range(2, max(shells) + 1):
        C = clebsch_gordan(degree - 1, 1, degree)
        D = np.einsum("abc,ad,be,def->cf", C, matrices[-1], first, C, optimize=True)
        matrices.append((2 * degree + 1) * D)
    turn = torch.from_numpy(np.ascontiguousarray(first))
    known = [o3.Irrep(n, (-1) ** n).D_from_matrix(turn) for n in range(len(matrices))]
    for ours, theirs in zip(matrices, known, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    return block_diag(*(matrices[degree] for degree in shells))


def rotate_matrix(matrix: BlockMatrix, rotation: np.ndarray) -> BlockMatrix:
    """Return structure and matrices, with positions `positions @ rotation.T`."""
    shells = zip(matrix.basis.elements, matrix.basis.shells.values(), strict=True)
    changes = {number: compute_wigner_matrix(rotation, own) for number, own in shells}
    numbers = matrix.structure.atomic_numbers[matrix.block_atoms]

    def turn(quantity: Quantity) -> np.ndarray:
        pairs = zip(matrix.iterate_blocks(quantity), numbers, strict=True)
        return np.concatenate([(changes[i] @ H @ changes[j].T).ravel() for H, (i, j) in pairs])

    one = matrix.structure
    turned = replace(one, positions=one.positions @ rotation.T, cell=one.cell @ rotation.T)
    return replace(
        matrix, structure=turned, hamiltonian=turn("hamiltonian"), overlap=turn("overlap")
    )
