"""Source `points`: points with energies, and gradients if there are any, from tables."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pipeline_core.artifacts import provenance
from pipeline_core.units import find_factor
from pipeline_htfbr.data.datasets import PointsSource, TableGradient
from pipeline_htfbr.data.made import Made
from pipeline_htfbr.data.points import Coordinate, Points
from pipeline_htfbr.data.table_files import Table, read_table

Floats = NDArray[np.float64]

_NO_GROUP: Final = "all"


@dataclass(frozen=True)
class _Part:
    """Points of one table.

    Attributes:
        x: (n, d) in the units of the coordinates.
        energy: (n,) in the unit of the file.
        gradient: (n, d) likewise; None if there is none.
        group: (n,)
    """

    x: Floats
    energy: Floats
    gradient: Floats | None
    group: NDArray[np.object_]


def read_tables(source: PointsSource, files: Mapping[str, Path]) -> Made:
    """Read all tables of a source.

    Args:
        source: Description of the tables.
        files: Names and paths of the tables.

    Raises:
        ValueError: A table is damaged, a column is missing, or a shape is wrong.
    """
    tables = [read_table(name, path) for name, path in files.items()]
    parts = [_read_part(table, source) for table in tables]
    points = Points(
        coordinates=tuple(Coordinate(**c.model_dump(exclude={"key"})) for c in source.coordinates),
        x=np.concatenate([part.x for part in parts]),
        energy=np.concatenate([part.energy for part in parts])
        * find_factor("energy", source.energy.unit),
        gradient=_join_gradients(parts, source),
        group=np.concatenate([part.group for part in parts]),
        split=np.full(sum(len(part.x) for part in parts), -1, dtype=np.int8),
    )
    sizes = {table.name: len(part.x) for table, part in zip(tables, parts, strict=True)}
    ends = list(accumulate(sizes.values()))

    def describe_place(i: int) -> str:
        number = bisect_right(ends, i)
        return tables[number].place(i - (ends[number] - len(parts[number].x)))

    return Made(
        points=points,
        facts={"reader": source.reader, "unit": source.energy.unit, "files": sizes},
        inputs={name: provenance.hash_file(path) for name, path in files.items()},
        place=describe_place,
    )


def _read_part(table: Table, source: PointsSource) -> _Part:
    energy = table.read_numbers(source.energy.key, "source.energy.key")
    if energy.ndim != 1:
        raise ValueError(
            f"{table.name}: {source.energy.key!r} has the shape {energy.shape}, expected one "
            "energy per point"
        )
    n, d = len(energy), len(source.coordinates)
    if not n:
        raise ValueError(f"{table.name}: holds no points; remove the file, or write it again")
    if source.array is not None:
        x = _read_matrix(table, source.array, "source.array", (n, d))
    else:
        keys = [one.key or one.name for one in source.coordinates]
        x = _read_columns(table, keys, "source.coordinates", n)
    gradient = None
    match source.gradient:
        case TableGradient(keys=str(key)):
            gradient = _read_matrix(table, key, "source.gradient.keys", (n, d))
        case TableGradient(keys=list(columns)):
            gradient = _read_columns(table, columns, "source.gradient.keys", n)
    return _Part(x, energy, gradient, _read_group(table, source, n))


def _read_matrix(table: Table, key: str, option: str, shape: tuple[int, int]) -> Floats:
    """Read one array that holds all coordinates, (n, d)."""
    matrix = table.read_numbers(key, option)
    if matrix.shape != shape:
        raise ValueError(
            f"{table.name}: {option} {key!r} has the shape {matrix.shape}, expected {shape}: "
            f"{shape[0]} energies, {shape[1]} coordinates"
        )
    return matrix


def _read_columns(table: Table, keys: Sequence[str], option: str, n: int) -> Floats:
    """Read one column for each coordinate, (n, d)."""
    columns = [table.read_numbers(key, option) for key in keys]
    for key, column in zip(keys, columns, strict=True):
        if column.shape != (n,):
            raise ValueError(
                f"{table.name}: {option} {key!r} has the shape {column.shape}, expected ({n},) as "
                "the energies"
            )
    return np.stack(columns, axis=1)


def _join_gradients(parts: Sequence[_Part], source: PointsSource) -> Floats | None:
    if source.gradient is None:
        return None
    gradients = [part.gradient for part in parts if part.gradient is not None]
    return np.concatenate(gradients) * find_factor(
        "energy", source.gradient.unit or source.energy.unit
    )


def _read_group(table: Table, source: PointsSource, n: int) -> NDArray[np.object_]:
    if source.group is None or source.group == "file":
        return np.full(n, _NO_GROUP if source.group is None else table.name, dtype=object)
    names = table.read_names(source.group, "source.group")
    if len(names) != n:
        raise ValueError(
            f"{table.name}: source.group {source.group!r} has {len(names)} names for {n} energies"
        )
    return names
