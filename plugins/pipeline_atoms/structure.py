"""Atoms in a cell, the common input of all atomistic models."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from pipeline_core.fields import SPLITS

if TYPE_CHECKING:
    from ase import Atoms

INPUTS: Final = ("atomic_numbers", "positions", "cell", "pbc")
"""Fields of a sample that make its structure."""


@dataclass(frozen=True)
class Structure:
    """Atoms in a cell.

    Attributes:
        atomic_numbers: (n_atoms,)
        positions: Å, (n_atoms, 3).
        cell: Rows are lattice vectors, Å, (3, 3).
        pbc: Periodic directions, (3,).
    """

    atomic_numbers: NDArray[np.int32]
    positions: NDArray[np.float64]
    cell: NDArray[np.float64]
    pbc: NDArray[np.bool_]

    @classmethod
    def of(cls, atoms: Atoms) -> Self:
        """Return the structure of ASE's atoms."""
        cell, pbc = np.array(atoms.cell, dtype=np.float64), np.array(atoms.pbc)
        return cls(atoms.numbers.astype(np.int32), np.asarray(atoms.positions), cell, pbc)

    @classmethod
    def of_fields(cls, fields: Mapping[str, Any]) -> Self:
        """Return the structure of a sample, or of other arrays by the names of `INPUTS`."""
        kinds = (np.int32, np.float64, np.float64, np.bool_)
        pairs = zip(INPUTS, kinds, strict=True)
        arrays: list[Any] = [np.asarray(fields[name], kind) for name, kind in pairs]
        return cls(*arrays)

    def select(self, rows: Any) -> dict[str, NDArray[Any]]:
        """Return some atoms, by their numbers, in the same cell as fields of a sample."""
        numbers, positions = self.atomic_numbers[rows], self.positions[rows]
        return vars(self) | {"atomic_numbers": numbers, "positions": positions}

    def make_atoms(self) -> Atoms:
        """Return the structure as ASE's atoms."""
        from ase import Atoms

        return Atoms(self.atomic_numbers, self.positions, cell=self.cell, pbc=self.pbc)

    def repeat(self, copies: Sequence[int]) -> Self:
        """Return copies along the lattice vectors, in ASE's order: one copy after the other."""
        return self.of(self.make_atoms().repeat(copies))


def parse_start(start: str) -> tuple[str, int] | None:
    """Return split and number of a start such as "test:0"; None for the path of a file."""
    match = re.fullmatch(rf"({'|'.join(SPLITS)}):(\d+)", start)
    return (match[1], int(match[2])) if match else None
