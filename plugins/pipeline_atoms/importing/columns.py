"""Columns of an import: a few numbers for every sample of atoms, whatever its size."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_core.config.datasets import Split
from pipeline_core.data.duplicates import Ints, hash_content
from pipeline_core.data.splits import divide
from pipeline_core.fields import FIELDS, SYMBOLS


def count_elements(atomic_numbers: NDArray[np.int32]) -> bytes:
    """Return the composition of a structure, (n_atoms,) Z: its elements and their counts."""
    counts = np.bincount(atomic_numbers)
    elements = np.flatnonzero(counts)
    return np.stack([elements, counts[elements]]).tobytes()


@lru_cache(maxsize=1 << 16)
def format_formula(composition: bytes) -> str:
    """Return the reduced formula of a composition, symbols in alphabetical order."""
    elements, counts = _split(composition)
    parts = zip(elements, counts // np.gcd.reduce(counts), strict=True)
    symbols = sorted((SYMBOLS[z], n) for z, n in parts)
    return "".join(f"{symbol}{n if n > 1 else ''}" for symbol, n in symbols)


def _split(composition: bytes) -> Ints:
    return np.frombuffer(composition, dtype=np.int64).reshape(2, -1)


def hash_frame(cell: Mapping[str, NDArray[Any]]) -> tuple[int, int]:
    """Return the hashes of the structure and the labels of a frame.

    Two frames are equal if their atoms, in order, their lattice vectors, their periodic directions
    and their positions are the same to 1e-8 Å. Copies of one cell by `repeat` come from equal
    frames.

    Args:
        cell: The frame in the engine's units, before copies of it are made.
    """
    structure = (cell["atomic_numbers"], cell["pbc"], cell["cell"], cell["positions"])
    labels = (cell[name] for name in sorted(cell) if FIELDS[name].label)
    return hash_content(structure, labels)


class Compositions:
    """Compositions seen so far, each with a number."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def number(self, composition: bytes) -> int:
        """Return the number of a composition, as `count_elements` gives it."""
        return self._numbers.setdefault(composition, len(self._numbers))

    def include(self, others: Compositions) -> Ints:
        """Take over the compositions of `others`; return the number here of each, (n_others,)."""
        return np.array([self.number(key) for key in others._numbers], dtype=np.int64)

    def list_formulas(self) -> list[str]:
        """Return the reduced formula of each composition in the order of their numbers."""
        return [format_formula(key) for key in self._numbers]

    def __iter__(self) -> Iterator[tuple[Ints, Ints]]:
        """Yield (elements, counts) of each composition in the order of their numbers."""
        for key in self._numbers:
            elements, counts = _split(key)
            yield elements, counts


class Columns:
    """One entry a sample: composition, group, number of atoms, energy, and the split if given."""

    def __init__(self) -> None:
        self.compositions = Compositions()
        self._group_numbers: dict[str, int] = {}
        self._composition, self._group, self._n_atoms = array("q"), array("q"), array("q")
        self._energy, self._split = array("d"), array("b")

    def __len__(self) -> int:
        return len(self._energy)

    def add(self, composition: int, group: str, n_atoms: int, energy: float, split: int) -> None:
        """Append a sample.

        Args:
            composition: Its number in `compositions`.
            group: Name of its group.
            n_atoms: Number of atoms.
            energy: Total energy, eV; NaN if it is missing.
            split: Code of its split; -1 if it is still to be chosen.
        """
        self._composition.append(composition)
        self._group.append(self._group_numbers.setdefault(group, len(self._group_numbers)))
        self._n_atoms.append(n_atoms)
        self._energy.append(energy)
        self._split.append(split)

    @property
    def composition(self) -> Ints:
        """Number of the composition of each sample, (n_samples,)."""
        return np.array(self._composition)

    @property
    def group(self) -> Ints:
        """Number of the group of each sample, a place in `groups`, (n_samples,)."""
        return np.array(self._group)

    @property
    def groups(self) -> list[str]:
        """Names of the groups."""
        return list(self._group_numbers)

    @property
    def n_atoms(self) -> Ints:
        """Number of atoms of each sample, (n_samples,)."""
        return np.array(self._n_atoms)

    @property
    def energy(self) -> NDArray[np.float64]:
        """Total energy of each sample, eV, NaN if missing, (n_samples,)."""
        return np.array(self._energy)

    @property
    def split(self) -> NDArray[np.int8]:
        """Split named by the source of each sample, -1 if it names none, (n_samples,)."""
        return np.array(self._split)

    def divide(self, options: Split, first: Ints | None = None) -> NDArray[np.int8]:
        """Choose the split of each sample, as `data.splits.divide` does, (n_samples,)."""
        groups = np.array(self.groups, dtype=object)[self.group]
        by_formula = options.method == "composition"
        formulas = (self.composition, self.compositions.list_formulas()) if by_formula else None
        energy = self.energy / self.n_atoms
        return divide(
            groups.tolist(), options, first, split=self.split, energy=energy, formulas=formulas
        )

    def append(self, name: str, part: Columns) -> None:
        """Append the samples of a part of a mixture under its name."""
        composition = self.compositions.include(part.compositions)
        names = [qualify_group(name, group) for group in part.groups]
        group = [self._group_numbers.setdefault(n, len(self._group_numbers)) for n in names]
        self._composition.extend(composition[part.composition].tolist())
        self._group.extend(np.array(group)[part.group].tolist())
        self._n_atoms.extend(part._n_atoms)
        self._energy.extend(part._energy)
        self._split.extend(part._split)


def qualify_group(part: str, group: str) -> str:
    """Return the name of a part's group within a mixture."""
    return f"{part}/{group}" if group else part
