"""Conversion of single matrix elements, as programs write them, to blocks of atom pairs."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline_atoms.structure import Structure
from pipeline_egnn_esp.data.basis import Basis
from pipeline_egnn_esp.data.matrices import BlockIndex, count_within, is_first

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Elements:
    """Elements of a matrix of the orbitals of a cell and all its images.

    Attributes:
        shift: (n, 3) image of the column, in lattice vectors.
        row: (n,) orbital of the home cell.
        column: (n,) orbital, counted within its cell.
        value: (n,)
    """

    shift: Ints
    row: Ints
    column: Ints
    value: Floats


@dataclass(frozen=True)
class Gathered:
    """Elements put into blocks.

    Attributes:
        entries: (n_entries,) the blocks one after the other, each by rows.
        asymmetry: Largest difference of the two members of a hermitian pair where both are
            given; where only one triangle is given they are equal by definition.
        left_out: Largest magnitude of an element outside of all blocks.
    """

    entries: Floats
    asymmetry: float
    left_out: float


class Places:
    """Map from matrix elements to the entries of blocks.

    Args:
        structure: The atoms.
        basis: Their shells.
        block_atoms: (n_blocks, 2), one of each hermitian pair.
        block_shift: (n_blocks, 3)
    """

    def __init__(
        self, structure: Structure, basis: Basis, block_atoms: Ints, block_shift: Ints
    ) -> None:
        counts = basis.count_orbitals_per_atom(structure.atomic_numbers)
        self._atom = np.repeat(np.arange(len(counts)), counts)
        self._local = count_within(counts)
        self._index = BlockIndex(block_atoms, block_shift)
        shapes = counts[block_atoms]
        sizes = shapes.prod(axis=1)
        self._n_columns, self._begins = shapes[:, 1], np.cumsum(sizes) - sizes
        self.n_entries = int(sizes.sum())

    def gather(self, elements: Elements) -> Gathered:
        """Put elements into the blocks; both members of a pair, or one of them, may be given."""
        first = is_first(elements.row, elements.column, elements.shift)
        row = np.where(first, elements.row, elements.column)
        column = np.where(first, elements.column, elements.row)
        shift = np.where(first[:, None], elements.shift, -elements.shift)
        entry = self._find_entries(row, column, shift)
        inside = entry >= 0
        left_out = float(np.abs(elements.value[~inside]).max(initial=0))
        entry, value = entry[inside], elements.value[inside]
        low, high = np.zeros((2, self.n_entries))
        counts = np.bincount(entry, minlength=self.n_entries)
        total = np.bincount(entry, value, self.n_entries)
        if (elements.row > elements.column).any():
            # In full matrices a missing partner counts as zero: it was below the threshold.
            own = (row == column) & ~shift.any(axis=1)
            value = np.concatenate([value, value[own[inside]]])
            entry = np.concatenate([entry, entry[own[inside]]])
            counts = np.bincount(entry, minlength=self.n_entries)
            total = np.bincount(entry, value, self.n_entries)
            low[counts > 1] = high[counts > 1] = np.nan
            np.fmin.at(low, entry, value)
            np.fmax.at(high, entry, value)
        entries = total / np.maximum(counts, 1)
        return Gathered(self._mirror(entries), float((high - low).max(initial=0)), left_out)

    def _find_entries(self, row: Ints, column: Ints, shift: Ints) -> Ints:
        """Return the entry of each element, -1 where its block is missing."""
        atoms = np.stack([self._atom[row], self._atom[column]], axis=1)
        block = self._index.find(atoms, shift)
        entry = self._begins[block] + self._local[row] * self._n_columns[block]
        return np.where(block >= 0, entry + self._local[column], -1)

    def _mirror(self, entries: Floats) -> Floats:
        """Fill the lower triangles of the diagonal blocks from the upper ones."""
        n = len(self._atom)
        rows = np.arange(n)
        ends = np.searchsorted(self._atom, self._atom, side="right")
        row = np.repeat(rows, ends - rows)
        column = row + count_within(ends - rows)
        still = np.zeros((len(row), 3), dtype=np.int64)
        entries[self._find_entries(column, row, still)] = entries[
            self._find_entries(row, column, still)
        ]
        return entries
