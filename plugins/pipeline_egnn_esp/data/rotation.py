"""Rotated and mirrored structures: H' = D H Dᵀ with the Wigner matrices of the shells."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pipeline_egnn_esp.data.matrices import BlockMatrix, Quantity
from pipeline_kernels.equivariant.clebsch_gordan import clebsch_gordan
from pipeline_kernels.equivariant.wigner import PERMUTATION

Floats = NDArray[np.float64]


def compute_wigner_matrices(rotation: Floats, lmax: int) -> list[Floats]:
    """Return the matrices that transform real spherical harmonics under a rotation of vectors.

    Each is made of the matrices of degrees l - 1 and 1 by coupling, so that an inversion multiplies
    degree l by (-1)^l.

    Args:
        rotation: Rotation of (x, y, z) or one with a reflection, (3, 3).
        lmax: Highest degree.

    Returns:
        D_0, ..., D_lmax, (2l+1, 2l+1) each, for orbitals in the order of `basis`.

    Raises:
        ValueError: The matrix is not orthogonal.
    """
    rotation = np.asarray(rotation, dtype=np.float64)
    if rotation.shape != (3, 3) or not np.allclose(rotation @ rotation.T, np.eye(3), atol=1e-10):
        raise ValueError("rotation: expected an orthogonal matrix of shape (3, 3)")
    first = rotation[np.ix_(PERMUTATION, PERMUTATION)]
    matrices = [np.ones((1, 1)), first]
    for degree in range(2, lmax + 1):
        C = clebsch_gordan(degree - 1, 1, degree)
        D = np.einsum("abc,ad,be,def->cf", C, matrices[-1], first, C, optimize=True)
        matrices.append((2 * degree + 1) * D)
    return matrices[: lmax + 1]


def rotate_matrix(matrix: BlockMatrix, rotation: Floats) -> BlockMatrix:
    """Return structure and matrices after a rotation or reflection of space.

    Args:
        matrix: The matrices.
        rotation: Orthogonal: positions become `positions @ rotation.T`, (3, 3).
    """
    wigner = compute_wigner_matrices(rotation, matrix.basis.lmax)
    changes = {
        number: _join_diagonal([wigner[degree] for degree in shells])
        for number, shells in zip(matrix.basis.elements, matrix.basis.shells.values(), strict=True)
    }
    numbers = matrix.structure.atomic_numbers[matrix.block_atoms]  # (n_blocks, 2)

    def turn(quantity: Quantity) -> Floats:
        pairs = zip(matrix.iterate_blocks(quantity), numbers, strict=True)
        return np.concatenate([(changes[i] @ H @ changes[j].T).ravel() for H, (i, j) in pairs])

    structure = matrix.structure
    return replace(
        matrix,
        structure=replace(
            structure,
            positions=structure.positions @ rotation.T,
            cell=structure.cell @ rotation.T,
        ),
        hamiltonian=turn("hamiltonian"),
        overlap=turn("overlap"),
    )


def _join_diagonal(parts: list[Floats]) -> Floats:
    size = sum(len(part) for part in parts)
    whole, begin = np.zeros((size, size)), 0
    for part in parts:
        end = begin + len(part)
        whole[begin:end, begin:end] = part
        begin = end
    return whole
