"""Atoms in a cell, the common input of all atomistic models."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline_core.fields import SPLITS


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

    def repeat(self, copies: Sequence[int]) -> Structure:
        """Return copies along each lattice vector; atoms of one copy stay together."""
        shifts = np.indices(copies).reshape(3, -1).T @ self.cell  # (n_copies, 3)
        return Structure(
            np.tile(self.atomic_numbers, len(shifts)),
            (shifts[:, None] + self.positions).reshape(-1, 3),
            self.cell * np.asarray(copies)[:, None],
            self.pbc,
        )


def parse_start(start: str) -> tuple[str, int] | None:
    """Return split and number of a start such as "test:0"; None for the path of a file."""
    match = re.fullmatch(rf"({'|'.join(SPLITS)}):(\d+)", start)
    return (match[1], int(match[2])) if match else None
