"""Dataset files of potential energy surfaces: points that are generated or read from tables."""

from __future__ import annotations

from math import prod
from typing import Annotated, Final, Literal

from pydantic import Field, field_validator, model_validator

from pipeline_core.config.datasets import DatasetFile, Split
from pipeline_core.config.sections import Count, Positive, Section
from pipeline_core.units import find_factor

Seed = Annotated[int, Field(ge=0)]
GridPoints = Annotated[int, Field(ge=2)]
N_HONO: Final = 6
"""Number of coordinates of the surface of HONO."""


class HonoSource(Section):
    """Points of the published surface of HONO, within the domain of its tables."""

    reader: Literal["hono"]
    points: Count = 20_000
    sampling: Literal["grid", "uniform"] = "grid"
    """Distinct random points of a regular grid, or uniform random points of the domain."""
    grid: GridPoints | list[GridPoints] = 10
    """Grid: points along every coordinate, one number for all or one each, both ends included."""
    gradients: bool = False
    """Store the gradients too."""
    seed: Seed = 0

    @property
    def counts(self) -> list[int]:
        """Points of the grid along each coordinate."""
        return self.grid if isinstance(self.grid, list) else [self.grid] * N_HONO

    @model_validator(mode="after")
    def _check_size(self) -> HonoSource:
        if len(self.counts) != N_HONO:
            raise ValueError(
                f"grid: {len(self.counts)} numbers for {N_HONO} coordinates; give one for each, or "
                "one for all"
            )
        if self.sampling == "grid" and self.points > prod(self.counts):
            raise ValueError(
                f"points: {self.points} of a grid of {prod(self.counts)}; lower it, raise `grid`, "
                "or choose sampling: uniform"
            )
        return self


class EtheneSource(Section):
    """Points along classical GFN2-xTB trajectories of ethene, with Wigner-sampled starts."""

    reader: Literal["ethene_xtb"]
    points: Count = 42_907
    steps: Count = 300
    """Most steps of one trajectory; it ends early above 0.25 hartree, or where the charges do
    not converge."""
    timestep: Positive = 0.48
    """fs"""
    stride: Count = 2
    """Steps between two kept points."""
    gradients: bool = False
    """Store the gradients too."""
    seed: Seed = 0
    processes: Count | None = None
    """Worker processes; null for one per available core. The points do not depend on it."""


class TableCoordinate(Section):
    """A coordinate of a table."""

    name: str
    unit: Literal["bohr", "angstrom", "radian", "degree", "1"]
    """Unit, which is kept; "1" for a dimensionless coordinate."""
    lower: float | None = None
    """Lower bound of the domain of the surface; null to take it from the points."""
    upper: float | None = None
    period: Positive | None = None
    """Period of the surface; null for a coordinate that is not periodic."""
    key: str | None = None
    """Column or array; null if it has the name of the coordinate."""

    @field_validator("unit", mode="before")
    @classmethod
    def _read_unit(cls, unit: object) -> object:
        # YAML reads a bare 1 as a number.
        return "1" if unit == 1 else unit

    @model_validator(mode="after")
    def _check_order(self) -> TableCoordinate:
        if self.lower is not None and self.upper is not None and self.lower >= self.upper:
            raise ValueError(
                f"{self.name}: lower {self.lower:g} is not below upper {self.upper:g}; exchange or "
                "correct them"
            )
        return self


class TableEnergy(Section):
    """The energies of a table."""

    unit: str
    """Such as eV, hartree, cm^-1 or kcal/mol. No default: a wrong guess would go unnoticed."""
    key: str = "energy"
    """Column or array."""

    @field_validator("unit")
    @classmethod
    def _check_unit(cls, unit: str) -> str:
        find_factor("energy", unit)
        return unit


class TableGradient(Section):
    """The gradients of a table, in units of energy per unit of the coordinate."""

    keys: str | list[str]
    """One column or array for each coordinate, in their order, or one array (n, d)."""
    unit: str | None = None
    """Unit of energy; null for the unit of the energies."""

    @field_validator("unit")
    @classmethod
    def _check_unit(cls, unit: str | None) -> str | None:
        if unit is not None:
            find_factor("energy", unit)
        return unit


class PointsSource(Section):
    """Points from tables: CSV with a header row, HDF5 or NPZ, by the file name's extension."""

    reader: Literal["points"]
    path: str
    """File or glob pattern, relative to the dataset file; ** crosses folders."""
    coordinates: Annotated[list[TableCoordinate], Field(min_length=1)]
    array: str | None = None
    """HDF5, NPZ: one array (n, d) that holds all coordinates in their order; null if each has an
    array of its own."""
    energy: TableEnergy
    gradient: TableGradient | None = None
    group: str | None = None
    """Groups of points: "file", or a column or array of names; null for none."""

    @model_validator(mode="after")
    def _check_consistency(self) -> PointsSource:
        names = [one.name for one in self.coordinates]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise ValueError(f"two coordinates are named {twice[0]!r}; rename one")
        keyed = [one.name for one in self.coordinates if one.key is not None]
        if self.array is not None and keyed:
            raise ValueError(
                f"array {self.array!r} holds all coordinates, but {keyed[0]!r} has a key of its "
                "own; remove one of the two"
            )
        keys = self.gradient.keys if self.gradient else None
        if isinstance(keys, list) and len(keys) != len(names):
            raise ValueError(
                f"gradient.keys: {len(keys)} keys for {len(names)} coordinates; give one for each, "
                "or one array (n, d)"
            )
        return self


class PointDataset(DatasetFile):
    """Points of a potential energy surface."""

    source: Annotated[HonoSource | EtheneSource | PointsSource, Field(discriminator="reader")]
    """Source of the points.

    | reader     | points                                                                       |
    |------------|------------------------------------------------------------------------------|
    | hono       | of the surface of HONO by Richter et al., exact                              |
    | ethene_xtb | of ethene by GFN2-xTB; needs tblite                                          |
    | points     | read from tables                                                             |
    """
    split: Split = Split()

    @property
    def raw_patterns(self) -> dict[str, str]:
        """Pattern of the tables; none for points that are generated."""
        return {"source.path": self.source.path} if isinstance(self.source, PointsSource) else {}

    @model_validator(mode="after")
    def _check_split(self) -> PointDataset:
        if self.split.method == "composition":
            raise ValueError(
                "split.method 'composition': points of one surface have no compositions; choose "
                "random, group, list or energy"
            )
        if self.split.method in ("group", "list") and not self._check_groups():
            raise ValueError(
                f"split.method {self.split.method!r} needs groups, which this source does not "
                "have; choose random or energy"
                + (", or set source.group" if isinstance(self.source, PointsSource) else "")
            )
        return self

    def _check_groups(self) -> bool:
        if isinstance(self.source, PointsSource):
            return self.source.group is not None
        return isinstance(self.source, EtheneSource)
