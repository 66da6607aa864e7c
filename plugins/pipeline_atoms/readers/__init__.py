"""Readers of raw files: the interface of formats and frames.

A reader yields frames one by one and never holds a whole file in memory. It returns numbers as in
the file and states their units and the sign of the stress; the data stage converts. A frame that
cannot be read is yielded as a `BadFrame`, so that one damaged frame does not lose the file.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Frame:
    """One structure with its labels, in the file's own units.

    Attributes:
        atomic_numbers: (n_atoms,) Z.
        positions: (n_atoms, 3) Cartesian.
        cell: (3, 3) rows are lattice vectors, zero if there is none.
        pbc: (3,) periodic directions.
        labels: Field name to value: energy (), forces (n_atoms, 3), stress (3, 3), magmoms
            (n_atoms,).
        info: Further information of the file on the frame, for grouping: str, int, float or bool.
        index: Number of the frame in its file, from 0.
    """

    atomic_numbers: NDArray[np.int32]
    positions: Floats
    cell: Floats
    pbc: NDArray[np.bool_]
    labels: Mapping[str, Floats]
    info: Mapping[str, Any] = field(default_factory=dict)
    index: int = 0


@dataclass(frozen=True)
class BadFrame:
    """A frame that could not be read: its number in the file and the reason."""

    index: int
    reason: str


@dataclass(frozen=True)
class Units:
    """Units of a reader's numbers, by their names in `pipeline_core.units`, and the stress sign."""

    length: str = "angstrom"
    energy: str = "eV"
    force: str = "eV/angstrom"
    stress: str = "eV/angstrom^3"
    stress_sign: str = "tension"


@dataclass(frozen=True, kw_only=True)
class Reader:
    """A raw format.

    Attributes:
        name: Name in dataset files.
        summary: One sentence for `pipeline-core readers`.
        suffixes: Endings of file names that suggest this format, with the dot, such as ".extxyz".
        units: Units and sign of the numbers, unless a dataset file declares others.
        read: Function (path, keys) -> frames. `keys` maps field names to names of labels in the
            file; an empty mapping means the format's own names.
        keys: True if a dataset file may choose the names of labels.
        beside: Patterns of further files that are read with one, relative to its folder; they are
            part of the data.
        values: For formats with `keys`, function path -> for each good frame, its numeric values
            besides the structure, by their names in the file; shown to find the names of labels.
    """

    name: str
    summary: str
    suffixes: tuple[str, ...]
    units: Units
    read: Callable[[Path, Mapping[str, str]], Iterator[Frame | BadFrame]]
    keys: bool = False
    beside: tuple[str, ...] = ()
    values: Callable[[Path], Iterator[Mapping[str, Floats]]] | None = None


__all__ = ["BadFrame", "Frame", "Reader", "Units"]
