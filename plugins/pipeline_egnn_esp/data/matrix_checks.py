"""Checks of the matrices of every structure; each error names the likely cause."""

from itertools import pairwise
from typing import Final

import numpy as np
import torch
from ase.data import chemical_symbols
from numpy.typing import NDArray

from pipeline_atoms.structure import Structure
from pipeline_egnn_esp.data.baselines import make_frames, number_entries
from pipeline_egnn_esp.data.basis import Basis
from pipeline_egnn_esp.data.matrices import BlockMatrix

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_HERMITIAN: Final = {"hamiltonian": 2e-3, "overlap": 1e-4}
"""eV and 1: programs that sum over grids and thresholds reach 1e-4 and 1e-6."""
_NORMALISED: Final = 2e-3
_SPHERICAL: Final = 1e-3
_AXIAL: Final = 1e-3
_APART: Final = 1e-3  # Å
_TESTED: Final = 2_000
"""Blocks whose symmetry is checked"""


def require_hermitian(quantity: str, asymmetry: float) -> None:
    """Check the largest difference of the two members of a hermitian pair, eV or 1.

    Raises:
        ValueError: They differ.
    """
    if asymmetry > _HERMITIAN[quantity]:
        unit = " eV" if quantity == "hamiltonian" else ""
        raise ValueError(
            f"the {quantity} is not hermitian: H_ij(R) and the transpose of H_ji(-R) differ by up "
            f"to {asymmetry:.3g}{unit}; a part of it may be missing, or its images are in "
            "another order than stated: write it again"
        )


def require_sound(matrix: BlockMatrix) -> None:
    """Check basis, order of the atoms, images and completeness by means of the overlap.

    Raises:
        ValueError: Numbers are not finite, an orbital is not normalised, orbitals of one atom
            overlap as only orbitals of different atoms do, or the overlap of two atoms is not
            symmetric about the line between them.
    """
    for quantity in ("hamiltonian", "overlap"):
        bad = ~np.isfinite(getattr(matrix, quantity))
        if bad.any():
            raise ValueError(
                f"the {quantity} has {bad.sum()} elements that are not finite; calculate it again"
            )
    on_site = np.flatnonzero(matrix.is_on_site)
    if len(on_site) != len(matrix.structure.atomic_numbers):
        raise ValueError(
            f"{len(on_site)} blocks H_ii(0) for {len(matrix.structure.atomic_numbers)} atoms; "
            "write the matrices again with all of them"
        )
    for number in on_site.tolist():
        _require_normalised(matrix, number)
        _require_spherical(matrix, number)
    _require_axial(matrix)


def require_unfolded(structure: Structure, cutoff: float) -> None:
    """Check that a cell is large enough for matrices of the Gamma point alone.

    Raises:
        ValueError: An atom has several images of another within the cutoff.
    """
    if not structure.pbc.any():
        return
    heights = 1 / np.linalg.norm(np.linalg.inv(structure.cell), axis=0)
    short = heights[structure.pbc].min()
    if short < 2 * cutoff:
        raise ValueError(
            f"matrices of the Gamma point of a cell that is {short:.3g} Å across, with a cutoff "
            f"of {cutoff:g} Å: they are folded, each block being the sum over all periodic images "
            "of a pair, which a model has to separate; print one file an image (&KPOINTS and "
            f"REAL_SPACE .TRUE.), use a cell of at least {2 * cutoff:g} Å, or lower the cutoff of "
            "the source if the orbitals are shorter"
        )


def _require_normalised(matrix: BlockMatrix, number: int) -> None:
    values = np.diagonal(matrix.get_block("overlap", number))
    worst = int(np.abs(values - 1).argmax())
    if abs(values[worst] - 1) > _NORMALISED:
        raise ValueError(
            f"atom {matrix.block_atoms[number, 0]}: orbital {worst} overlaps with itself by "
            f"{values[worst]:.6g}, expected 1; the file is not complete, the basis does not match "
            "the matrices, or they are folded (calculated at the Gamma point in a cell smaller "
            "than the orbitals)"
        )


def _require_spherical(matrix: BlockMatrix, number: int) -> None:
    """Check that shells of one atom overlap as the rotations of an atom allow."""
    atom = int(matrix.block_atoms[number, 0])
    symbol = chemical_symbols[matrix.structure.atomic_numbers[atom]]
    shells = matrix.basis.shells[symbol]
    block = matrix.get_block("overlap", number)
    begins = np.cumsum([0, *(2 * degree + 1 for degree in shells)])
    for a, rows in zip(shells, pairwise(begins), strict=True):
        for b, columns in zip(shells, pairwise(begins), strict=True):
            part = block[slice(*rows), slice(*columns)]
            allowed = np.eye(2 * a + 1) * np.diagonal(part).mean() if a == b else 0.0
            error = np.abs(part - allowed).max()
            if error > _SPHERICAL:
                raise ValueError(
                    f"atom {atom} ({symbol}): its shells of degree {a} and {b} overlap by "
                    f"{error:.3g}, which orbitals of one atom do not; the atoms of the structure "
                    "are not in the order of the matrices, or the basis (shells "
                    f"{list(shells)}) does not match the matrices: correct one of them"
                )


def _require_axial(matrix: BlockMatrix) -> None:
    """Check that overlaps of two atoms are symmetric about the line between them.

    In a frame along this line, orbitals of different m do not overlap (J. C. Slater and G. F.
    Koster, Phys. Rev. 94, 1498 (1954)); no other order of atoms, images or orbitals gives that.
    """
    size = np.sqrt(np.add.reduceat(matrix.overlap**2, matrix.offsets[:-1]))
    far = np.flatnonzero((matrix.lengths > _APART) & (size > _AXIAL))
    chosen = far[:: max(1, len(far) // _TESTED)]
    if not len(chosen):
        return
    error = compute_asymmetry_about_axis(matrix, chosen)
    if not (error > _AXIAL).any():
        return
    worst = chosen[error.argmax()]
    (i, j), R = matrix.block_atoms[worst], matrix.block_shift[worst].tolist()
    raise ValueError(
        f"the overlap of atom {i} with atom {j} in cell {R} is not symmetric about the line "
        f"between them, by {error.max():.2g} (so for {np.count_nonzero(error > _AXIAL)} of "
        f"{len(chosen)} pairs): the atoms of the structure are not in the order of the matrices, "
        "the images refer to other positions, or the orbitals are not in the "
        "order of the layout (basis): correct that"
    )


def compute_asymmetry_about_axis(matrix: BlockMatrix, numbers: Ints) -> Floats:
    """Return the largest overlap of orbitals of different m about the line between two atoms.

    Args:
        matrix: The matrices.
        numbers: Numbers of blocks of two different places, (n,), at least one.

    Returns:
        (n,)
    """
    i, j = matrix.block_atoms[numbers].T
    atoms, basis = matrix.structure, matrix.basis
    vectors = torch.from_numpy(matrix.vectors[numbers])
    turned = make_frames(vectors, basis, number_entries(basis.common), torch.float64).numpy()
    orders = np.concatenate([np.arange(-degree, degree + 1) for degree in basis.common])
    entries = np.concatenate([matrix.get_block("overlap", number).ravel() for number in numbers])
    blocks = basis.pad(entries, atoms.atomic_numbers[i], atoms.atomic_numbers[j])
    about = turned @ blocks @ turned.transpose(0, 2, 1)
    different = orders[:, None] != orders
    largest: Floats = np.abs(about[:, different]).max(axis=1, initial=0)
    return largest


def merge_bases(first: Basis, second: Basis) -> Basis:
    """Return the basis of two sets of structures.

    Raises:
        ValueError: They disagree on the shells of an element.
    """
    for symbol in first.shells.keys() & second.shells.keys():
        if first.shells[symbol] != second.shells[symbol]:
            raise ValueError(
                f"shells {list(second.shells[symbol])} for {symbol}, but "
                f"{list(first.shells[symbol])} in the files before; give all sources one basis set"
            )
    return Basis({**first.shells, **second.shells})
