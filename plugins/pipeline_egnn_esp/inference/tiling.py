"""Exact matrices of repeated cells, from the matrices of one cell by translation."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pipeline_atoms.structure import Structure
from pipeline_egnn_esp.data.matrices import BlockMatrix, Quantity, count_within, is_first

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Tiling:
    """Matrices of a repeated cell whose atoms may have been moved by lattice vectors.

    Atom i of copy c of the cell has the number i + n_atoms (c_z + n_z (c_y + n_y c_x)), as ASE
    counts. The block (i, j, R) of the cell joins copy c of atom i with copy (c + R) mod n of atom j
    in the image floor((c + R) / n). Where atoms have been moved back by m lattice vectors of the
    repeated cell, the image is R + m_j - m_i.

    Attributes:
        cell: Matrices of the cell, or all of its blocks with one of some atoms at either end; then
            only these atoms may be rows.
        repeat: Copies n along the vectors of the cell.
        structure: The repeated cell.
        moved: m of each of its atoms, (n_atoms, 3).
    """

    cell: BlockMatrix
    repeat: tuple[int, int, int]
    structure: Structure
    moved: Ints

    def build_matrix(self, rows: Ints | None = None) -> BlockMatrix:
        """Return the kept blocks that have some atoms as their rows.

        Args:
            rows: Atoms of the repeated cell, (n,); all by default.
        """
        rows = np.arange(len(self.moved)) if rows is None else rows
        pairs, shift, numbers = self.find_blocks(rows)
        hamiltonian, overlap = (
            self.gather_entries(one, numbers) for one in ("hamiltonian", "overlap")
        )
        return BlockMatrix(self.structure, self.cell.basis, pairs, shift, hamiltonian, overlap)

    @property
    def most_blocks(self) -> int:
        """Largest number of blocks with one atom as rows, counting both members of pairs."""
        return int(self._by_atom[1].max())

    def find_blocks(self, rows: Ints) -> tuple[Ints, Ints, Ints]:
        """Find the kept blocks that have some atoms as their rows.

        Args:
            rows: Atoms of the repeated cell, (n,).

        Returns:
            Atoms (n_blocks, 2) and images (n_blocks, 3), and numbers for `gather_entries`,
            (n_blocks,).
        """
        n_cell = len(self.cell.structure.positions)
        copies, atoms = np.divmod(rows, n_cell)
        first, counts = self._by_atom
        n_own = counts[atoms]
        numbers = self._order[np.repeat(first[atoms], n_own) + count_within(n_own)]
        copy = np.repeat(np.stack(np.unravel_index(copies, self.repeat), axis=1), n_own, axis=0)
        i = np.repeat(rows, n_own)
        j, shift = self._find_other_end(numbers, copy)
        shift += self.moved[j] - self.moved[i]
        kept = is_first(i, j, shift)
        return np.stack([i, j], axis=1)[kept], shift[kept], numbers[kept]

    def gather_entries(self, quantity: Quantity, numbers: Ints) -> Floats:
        """Return the elements of blocks one after the other, each by rows."""
        is_transposed = numbers >= len(self.cell.block_atoms)
        values: Floats = getattr(self.cell, quantity)
        return values[self.cell.find_entries(self._both[2][numbers], is_transposed)]

    @cached_property
    def _both(self) -> tuple[Ints, Ints, Ints]:
        """Atoms, images and stored block of both of each hermitian pair; the second ones follow.

        Their entries are those of the cell: a copy would take as much memory as the matrices.
        """
        atoms, shift = self.cell.block_atoms, self.cell.block_shift
        others = np.flatnonzero(~self.cell.is_on_site)
        return (
            np.concatenate([atoms, atoms[others, ::-1]]),
            np.concatenate([shift, -shift[others]]),
            np.concatenate([np.arange(len(atoms)), others]),
        )

    @cached_property
    def _order(self) -> Ints:
        return np.argsort(self._both[0][:, 0], kind="stable")

    @cached_property
    def _by_atom(self) -> tuple[Ints, Ints]:
        """Begin in `_order`, and number, of the blocks with each atom as rows."""
        rows = self._both[0][:, 0]
        counts = np.bincount(rows, minlength=len(self.cell.structure.positions))
        return np.cumsum(counts) - counts, counts

    def _find_other_end(self, block: Ints, copy: Ints) -> tuple[Ints, Ints]:
        """Return the atom of the columns of each block, and the image that it is in."""
        atoms, shifts, _ = self._both
        target, image = copy + shifts[block], np.empty_like(copy)
        for axis, n in enumerate(self.repeat):
            image[:, axis], target[:, axis] = np.divmod(target[:, axis], n)
        number = np.ravel_multi_index(tuple(target.T), self.repeat)
        return number * len(self.cell.structure.positions) + atoms[block, 1], image
