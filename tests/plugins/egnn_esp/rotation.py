"""Rotated and mirrored structures: H' = D H Dᵀ with the Wigner matrices of e3nn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from e3nn import o3

from pipeline_egnn_esp.data.matrices import BlockMatrix, Quantity

ORDER = (1, 2, 0)
"""e3nn rotates vectors that are permuted to (y, z, x)."""


def compute_wigner_matrix(rotation: np.ndarray, shells: Sequence[int]) -> np.ndarray:
    """Return the matrix that turns the orbitals of shells, for an orthogonal matrix (3, 3)."""
    irreps = o3.Irreps([(1, (degree, (-1) ** degree)) for degree in shells])
    turn = torch.from_numpy(np.ascontiguousarray(rotation[np.ix_(ORDER, ORDER)]))
    return irreps.D_from_matrix(turn).numpy()


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
