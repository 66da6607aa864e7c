"""Reading the matrix blocks of some atoms, without holding all blocks of the structure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pipeline_atoms.structure import INPUTS, Structure
from pipeline_core.artifacts.samples import SampleFile
from pipeline_egnn_esp.data.basis import Basis
from pipeline_egnn_esp.data.matrices import BlockMatrix, join_matrices

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_BLOCKS: Final = 2**14
"""Blocks that are read at a time."""


class BlockReader:
    """Reader of the blocks of some atoms, a few blocks of the sample at a time.

    Args:
        data: Samples of matrices.
        basis: Basis set of the data.
    """

    def __init__(self, data: SampleFile, basis: Basis) -> None:
        self._data, self._basis = data, basis

    def read_structure(self, number: int) -> Structure:
        """Return the atoms of a sample in the file."""
        return Structure(*(self._data.read_field(name, number) for name in INPUTS))

    def read_blocks(self, number: int, atoms: Ints) -> PartialMatrix:
        """Return the blocks of a sample in the file that have one of the given atoms at either end.

        Args:
            number: Number of the sample.
            atoms: (n,)
        """
        structure = self.read_structure(number)
        is_own = np.zeros(len(structure.positions), dtype=bool)
        is_own[atoms] = True
        longest, sums, parts, kept = 0.0, np.zeros(2), [], []
        for part in self._read_parts(number, structure):
            longest = max(longest, float(part.lengths.max()))
            sums += project_on_overlap(part)
            kept.append(np.any(is_own[part.block_atoms], axis=1))
            parts.append(part.take(kept[-1]))
        numbers = np.flatnonzero(np.concatenate(kept))
        return PartialMatrix(join_matrices(parts), numbers, longest, float(sums[0] / sums[1]))

    def _read_parts(self, number: int, structure: Structure) -> Iterator[BlockMatrix]:
        """Yield some blocks at a time."""
        data, counts = self._data, self._basis.count_orbitals_per_atom(structure.atomic_numbers)
        n_blocks, end = int(data.count_rows("block")[number]), 0
        for first in range(0, n_blocks, _BLOCKS):
            blocks = slice(first, first + _BLOCKS)
            atoms, shift = (
                data.read_rows(name, number, blocks).astype(np.int64)
                for name in ("block_atoms", "block_shift")
            )
            begin, end = end, end + int(counts[atoms].prod(axis=1).sum())
            both = (
                data.read_rows(name, number, slice(begin, end))
                for name in ("hamiltonian", "overlap")
            )
            yield BlockMatrix(structure, self._basis, atoms, shift, *both)


@dataclass(frozen=True)
class PartialMatrix:
    """Some blocks of a structure, and numbers computed from all of its blocks.

    Attributes:
        matrix: The blocks.
        numbers: Place of each among all blocks of the structure, (n_blocks,).
        longest: Distance of the farthest pair with a block, Å.
        energy_zero: Zero of energies that makes the Hamiltonian orthogonal to the overlap, eV.
    """

    matrix: BlockMatrix
    numbers: Ints
    longest: float
    energy_zero: float


def project_on_overlap(matrix: BlockMatrix) -> Floats:
    """Return Σ H S and Σ S² over all elements of both of each hermitian pair, (2,)."""
    pairs = np.where(matrix.is_on_site, 1.0, 2.0)
    weights = np.repeat(pairs, matrix.shapes.prod(axis=1)) * matrix.overlap
    return np.array([weights @ matrix.hamiltonian, weights @ matrix.overlap])
