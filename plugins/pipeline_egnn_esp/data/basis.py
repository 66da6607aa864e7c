"""Shells of atomic orbitals, and one layout in which the blocks of all pairs of elements fit.

Orbitals of a shell of degree l are real spherical harmonics of e3nn on vectors permuted to
(y, z, x), in the order m = -l, ..., l: p is (y, z, x), d is (xy, yz, z², zx, x²-y²), all signs
positive. CP2K orders and signs them so.

The common layout holds, for each degree, as many shells as the element with most of them, by
ascending degree. The k-th shell of degree l of an element lies in the k-th place of this degree, so
that shells of equal degree and number share parameters in a model; the rest of a block is padding.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np
from ase.data import atomic_numbers as number_of
from ase.data import chemical_symbols
from numpy.typing import ArrayLike, NDArray

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LETTERS: Final = "spdfghi"
"""Names of the degrees of shells."""


def count_orbitals(shells: tuple[int, ...]) -> int:
    """Return the number of orbitals of shells with these degrees."""
    return sum(2 * degree + 1 for degree in shells)


@dataclass(frozen=True)
class Basis:
    """Basis set of a data set: the shells that determine the shape of its matrices.

    Attributes:
        shells: Degree of each shell of an element, by its symbol, in the order of the matrices:
            `{"Hf": (0, 0, 1, 2), "O": (0, 1)}`.
    """

    shells: Mapping[str, tuple[int, ...]] = field(hash=False)

    def __post_init__(self) -> None:
        for symbol, shells in self.shells.items():
            if symbol not in number_of or number_of[symbol] == 0:
                raise ValueError(
                    f"basis: {symbol!r} is not an element; name elements by symbols such as Hf"
                )
            if not shells or min(shells) < 0:
                raise ValueError(
                    f"basis: shells {list(shells)} of {symbol}; give the degree of each shell, 0 "
                    "for s, 1 for p, 2 for d"
                )
        rising = sorted(self.shells.items(), key=lambda item: number_of[item[0]])
        object.__setattr__(self, "shells", {symbol: tuple(shells) for symbol, shells in rising})

    @cached_property
    def common(self) -> tuple[int, ...]:
        """Degree of each shell of the common layout."""
        most: Counter[int] = Counter()
        for shells in self.shells.values():
            most |= Counter(shells)
        return tuple(sorted(most.elements()))

    @property
    def n_common(self) -> int:
        """Orbitals of the common layout: rows and columns of a padded block."""
        return count_orbitals(self.common)

    @property
    def lmax(self) -> int:
        """Highest degree of an orbital."""
        return self.common[-1]

    @property
    def elements(self) -> tuple[int, ...]:
        """Atomic numbers of the elements, ascending."""
        return tuple(number_of[symbol] for symbol in self.shells)

    def count_orbitals(self, atomic_number: int) -> int:
        """Return the number of orbitals of an element.

        Raises:
            ValueError: The basis lacks the element.
        """
        return len(self.find_orbitals(atomic_number))

    def count_orbitals_per_atom(self, atomic_numbers: ArrayLike) -> Ints:
        """Return the number of orbitals of each atom, (n_atoms,).

        Raises:
            ValueError: The basis lacks an element.
        """
        elements, place = np.unique(np.asarray(atomic_numbers), return_inverse=True)
        counts: Ints = np.array([self.count_orbitals(z) for z in elements], dtype=np.int64)[place]
        return counts

    def find_orbitals(self, atomic_number: int) -> Ints:
        """Return the places of the orbitals of an element in the common layout, (n_orbitals,).

        Raises:
            ValueError: The basis lacks the element.
        """
        rows = self._orbitals.get(int(atomic_number))
        if rows is None:
            exists = 0 <= atomic_number < len(chemical_symbols)
            name = chemical_symbols[atomic_number] if exists else f"atomic number {atomic_number}"
            raise ValueError(
                f"the basis has no orbitals for {name}, only for {', '.join(self.shells)}; use "
                "structures of these elements, or data that contain it"
            )
        return rows

    def mask(self, receivers: ArrayLike, senders: ArrayLike) -> Bools:
        """Return the mask of entries other than padding in the blocks of pairs of atoms.

        Args:
            receivers: Atomic number of the atom whose orbitals are the rows, (...).
            senders: Atomic number of the atom whose orbitals are the columns, (...).

        Returns:
            (..., n_common, n_common)

        Raises:
            ValueError: The basis lacks an element.
        """
        rows, columns = self._mark_present(receivers), self._mark_present(senders)
        marked: Bools = rows[..., :, None] & columns[..., None, :]
        return marked

    def pad(self, entries: Floats, receivers: ArrayLike, senders: ArrayLike) -> Floats:
        """Return blocks in the common layout, zero where padded.

        Args:
            entries: All blocks one after the other, each by rows, (n_entries,).
            receivers: Atomic numbers of the rows, (n_blocks,).
            senders: Atomic numbers of the columns, (n_blocks,).

        Returns:
            (n_blocks, n_common, n_common)
        """
        places = self._find_places(receivers, senders)
        assert len(places) == len(entries), (len(places), len(entries))
        blocks = np.zeros(len(np.asarray(receivers)) * self.n_common**2, dtype=entries.dtype)
        blocks[places] = entries
        return blocks.reshape(-1, self.n_common, self.n_common)

    def unpad(self, blocks: Floats, receivers: ArrayLike, senders: ArrayLike) -> Floats:
        """Return the entries of padded blocks without the padding, (n_entries,)."""
        return blocks.reshape(-1)[self._find_places(receivers, senders)]

    def to_json(self) -> str:
        """Return the basis as text, for an attribute of a file."""
        return json.dumps({symbol: list(shells) for symbol, shells in self.shells.items()})

    @classmethod
    def from_json(cls, text: str) -> Basis:
        """Return the basis from the text that `to_json` returns."""
        return cls({symbol: tuple(shells) for symbol, shells in json.loads(text).items()})

    @cached_property
    def _orbitals(self) -> dict[int, Ints]:
        return {number_of[symbol]: self._place_shells(own) for symbol, own in self.shells.items()}

    def _place_shells(self, shells: tuple[int, ...]) -> Ints:
        begins = np.cumsum([0, *(2 * degree + 1 for degree in self.common)])
        used: Counter[int] = Counter()
        places: list[int] = []
        for degree in shells:
            begin = begins[self.common.index(degree) + used[degree]]
            places.extend(range(begin, begin + 2 * degree + 1))
            used[degree] += 1
        return np.array(places, dtype=np.int64)

    def _mark_present(self, atomic_numbers: ArrayLike) -> Bools:
        """Mark the orbitals of each atom in the common layout, (..., n_common)."""
        numbers = np.asarray(atomic_numbers)
        elements, place = np.unique(numbers, return_inverse=True)
        table = np.zeros((len(elements), self.n_common), dtype=bool)
        for row, element in zip(table, elements, strict=True):
            row[self.find_orbitals(element)] = True
        return table[place.reshape(numbers.shape)]

    def _find_places(self, receivers: ArrayLike, senders: ArrayLike) -> Ints:
        """Return the place of each entry in the padded blocks laid out flat, (n_entries,)."""
        pairs = np.stack([np.asarray(receivers), np.asarray(senders)], axis=1)  # (n_blocks, 2)
        kinds, kind = np.unique(pairs, axis=0, return_inverse=True)
        n = self.n_common
        within = [
            (self.find_orbitals(i)[:, None] * n + self.find_orbitals(j)[None, :]).ravel()
            for i, j in kinds
        ]
        sizes = np.array([len(one) for one in within], dtype=np.int64)[kind]
        begins = np.cumsum(sizes) - sizes
        places = np.empty(int(sizes.sum()), dtype=np.int64)
        for number, one in enumerate(within):
            blocks = np.flatnonzero(kind == number)
            places[begins[blocks][:, None] + np.arange(len(one))] = blocks[:, None] * n * n + one
        return places
