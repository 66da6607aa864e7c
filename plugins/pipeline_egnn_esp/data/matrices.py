"""Hamiltonian and overlap of one structure as blocks of atom pairs.

Block (i, j, R) couples the orbitals of atom i in the home cell, the rows, with those of atom j in
cell R, the columns; their distance is |r_j + R·cell - r_i|. H_ji(-R) is the transpose of H_ij(R),
and only the one with R lexicographically positive, or R = 0 and i <= j, is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pipeline_atoms.graphs import build_neighbour_graph
from pipeline_atoms.structure import Structure
from pipeline_egnn_esp.data.basis import Basis

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Quantity = Literal["hamiltonian", "overlap"]


@dataclass(frozen=True)
class BlockMatrix:
    """Hamiltonian and overlap of one structure; one of each hermitian pair of blocks, or both.

    Attributes:
        structure: Atoms and cell, with the positions that the shifts refer to.
        basis: Shells of the elements; may hold further elements.
        block_atoms: (n_blocks, 2), i and j.
        block_shift: (n_blocks, 3), R in lattice vectors.
        hamiltonian: (n_entries,) eV, the blocks one after the other, each by rows.
        overlap: (n_entries,)
    """

    structure: Structure
    basis: Basis
    block_atoms: Ints
    block_shift: Ints
    hamiltonian: Floats
    overlap: Floats

    @cached_property
    def shapes(self) -> Ints:
        """Orbitals of i and of j, (n_blocks, 2)."""
        return self.basis.count_orbitals_per_atom(self.structure.atomic_numbers)[self.block_atoms]

    @cached_property
    def offsets(self) -> Ints:
        """Offset of the entries of each block, and the number of all entries, (n_blocks + 1,)."""
        return np.concatenate([[0], np.cumsum(self.shapes.prod(axis=1))])

    @cached_property
    def vectors(self) -> Floats:
        """Vector from i to j of each block, Å, (n_blocks, 3)."""
        i, j = self.block_atoms.T
        cell, positions = self.structure.cell, self.structure.positions
        vectors: Floats = positions[j] + self.block_shift @ cell - positions[i]
        return vectors

    @cached_property
    def lengths(self) -> Floats:
        """Distance of the atoms of each block, Å, (n_blocks,)."""
        lengths: Floats = np.linalg.norm(self.vectors, axis=1)
        return lengths

    @cached_property
    def is_on_site(self) -> Bools:
        """Mask of the blocks of an atom with itself in its own cell, (n_blocks,)."""
        i, j = self.block_atoms.T
        marked: Bools = (i == j) & ~self.block_shift.any(axis=1)
        return marked

    @property
    def n_orbitals(self) -> int:
        """Orbitals of all atoms of the cell."""
        return int(self.basis.count_orbitals_per_atom(self.structure.atomic_numbers).sum())

    def get_block(self, quantity: Quantity, number: int) -> Floats:
        """Return a block, (n_orbitals_i, n_orbitals_j)."""
        values: Floats = getattr(self, quantity)
        n, m = self.shapes[number]
        return values[self.offsets[number] : self.offsets[number + 1]].reshape(n, m)

    def iterate_blocks(self, quantity: Quantity) -> Iterator[Floats]:
        """Yield all blocks in order."""
        for number in range(len(self.block_atoms)):
            yield self.get_block(quantity, number)

    def find_entry_orbitals(self) -> tuple[Ints, Ints]:
        """Return row and column of each entry among the orbitals of the cell, (n_entries,) each."""
        counts = self.basis.count_orbitals_per_atom(self.structure.atomic_numbers)
        starts = np.cumsum(counts) - counts
        n_entries = self.shapes.prod(axis=1)
        row, column = np.divmod(count_within(n_entries), np.repeat(self.shapes[:, 1], n_entries))
        begins = np.repeat(starts[self.block_atoms], n_entries, axis=0)
        return row + begins[:, 0], column + begins[:, 1]

    def find_entries(self, blocks: Ints, is_transposed: Bools | None = None) -> Ints:
        """Return the places of the entries of some blocks, one block after the other.

        Args:
            blocks: Numbers of the blocks, (n,).
            is_transposed: Mask of those whose transpose is meant, (n,); none if not given.
        """
        sizes = self.shapes[blocks].prod(axis=1)
        places: Ints = count_within(sizes)
        if is_transposed is not None:
            others = sizes[is_transposed]
            n_rows, n_columns = self.shapes[blocks[is_transposed]].T
            # The rows of a transpose are the columns of the stored block.
            column, row = np.divmod(count_within(others), np.repeat(n_rows, others))
            places[np.repeat(is_transposed, sizes)] = row * np.repeat(n_columns, others) + column
        places += np.repeat(self.offsets[blocks], sizes)
        return places

    def take(self, chosen: Bools | Ints) -> BlockMatrix:
        """Return the matrices with some of the blocks, marked, or numbered in the wanted order."""
        blocks = np.arange(len(self.block_atoms))[chosen]
        entries = self.find_entries(blocks)
        return replace(
            self,
            block_atoms=self.block_atoms[blocks],
            block_shift=self.block_shift[blocks],
            hamiltonian=self.hamiltonian[entries],
            overlap=self.overlap[entries],
        )

    def join_partners(self) -> BlockMatrix:
        """Return the matrices with both of each hermitian pair; the second ones follow in order."""
        others = np.flatnonzero(~self.is_on_site)
        places = self.find_entries(others, np.ones(len(others), dtype=bool))
        partners = replace(
            self,
            block_atoms=self.block_atoms[others, ::-1],
            block_shift=-self.block_shift[others],
            hamiltonian=self.hamiltonian[places],
            overlap=self.overlap[places],
        )
        return join_matrices([self, partners])


def count_within(sizes: Ints) -> Ints:
    """Number the members of consecutive groups of these sizes, from 0 in each, (sizes.sum(),)."""
    within: Ints = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return within


def join_matrices(parts: Sequence[BlockMatrix]) -> BlockMatrix:
    """Return the blocks of parts of one structure, one part after the other."""
    columns = ("block_atoms", "block_shift", "hamiltonian", "overlap")
    joined: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts]) for name in columns
    }
    return replace(parts[0], **joined)


def is_first(rows: Ints, columns: Ints, shifts: Ints) -> Bools:
    """Return the mask of the kept member of each hermitian pair.

    Args:
        rows: Atom, or orbital, of the rows, (n,).
        columns: Atom, or orbital, of the columns, (n,).
        shifts: (n, 3)

    Returns:
        (n,), true for both where a block is its own partner.
    """
    x, y, z = shifts.T
    sign = np.where(x != 0, x, np.where(y != 0, y, z))
    first: Bools = (sign > 0) | ((sign == 0) & (rows <= columns))
    return first


def find_pairs_within(structure: Structure, cutoff: float) -> tuple[Ints, Ints]:
    """Return the kept blocks of all pairs up to a distance, on-site blocks included.

    Args:
        structure: Atoms and cell.
        cutoff: Å

    Returns:
        block_atoms (n_blocks, 2) and block_shift (n_blocks, 3), sorted by shift, then by atoms.
    """
    index, shift, _ = build_neighbour_graph(
        structure.positions, structure.cell, structure.pbc, cutoff
    )
    first = is_first(index[:, 0], index[:, 1], shift)
    own = np.arange(len(structure.positions))
    atoms = np.concatenate([np.stack([own, own], axis=1), index[first]])
    shifts = np.concatenate([np.zeros((len(own), 3), dtype=np.int64), shift[first]])
    order = np.lexsort([atoms[:, 1], atoms[:, 0], shifts[:, 2], shifts[:, 1], shifts[:, 0]])
    return atoms[order], shifts[order]


class BlockIndex:
    """Index of blocks by their names (i, j, R).

    Args:
        atoms: (n_blocks, 2), all blocks different.
        shifts: (n_blocks, 3)
    """

    def __init__(self, atoms: Ints, shifts: Ints) -> None:
        self._reach = int(np.abs(shifts).max(initial=0)) + 1
        self._n_atoms = int(atoms.max(initial=0)) + 1
        keys = self._make_keys(atoms, shifts)
        self._order = np.argsort(keys)
        self._sorted = keys[self._order]

    def find(self, atoms: Ints, shifts: Ints) -> Ints:
        """Return the number of each block, -1 if it is not there, (n,)."""
        if not len(self._sorted):
            return np.full(len(atoms), -1, dtype=np.int64)
        is_near = np.all(np.abs(shifts) < self._reach, axis=1)
        is_valid = is_near & np.all(atoms < self._n_atoms, axis=1)
        keys = self._make_keys(
            np.where(is_valid[:, None], atoms, 0), np.where(is_valid[:, None], shifts, 0)
        )
        place = np.minimum(np.searchsorted(self._sorted, keys), len(self._sorted) - 1)
        return np.where(is_valid & (self._sorted[place] == keys), self._order[place], -1)

    def _make_keys(self, atoms: Ints, shifts: Ints) -> Ints:
        key = np.zeros(len(atoms), dtype=np.int64)
        for axis in range(3):
            key = key * (2 * self._reach + 1) + shifts[:, axis] + self._reach
        result: Ints = (key * self._n_atoms + atoms[:, 0]) * self._n_atoms + atoms[:, 1]
        return result
