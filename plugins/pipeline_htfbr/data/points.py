"""Points of a potential energy surface, and their storage in `data.h5`.

Coordinates stay in the units in which they are declared, since they are the variables of the fit;
energies are in eV like all energies of the engine, and gradients in eV per unit of the coordinate.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_core.artifacts.samples import SampleFile, SampleWriter
from pipeline_core.fields import FIELDS, SPLITS, Field
from pipeline_htfbr.data.molecule import Molecule

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Coordinate:
    """One variable of a surface.

    Attributes:
        name: Such as "r_OH".
        unit: "bohr", "angstrom", "radian", "degree" or "1".
        lower: Lower bound of the domain; None to take it from the points.
        upper: Upper bound; None likewise.
        period: Period of the surface; None for a coordinate that is not periodic.
    """

    name: str
    unit: str
    lower: float | None = None
    upper: float | None = None
    period: float | None = None


@dataclass(frozen=True, kw_only=True)
class Points:
    """Points with their energies.

    Attributes:
        coordinates: The variables, d of them.
        x: (n, d) in the units of the coordinates.
        energy: (n,) eV.
        gradient: (n, d) eV per unit of the coordinate; None if there are none.
        group: (n,) name of the trajectory or file of each point.
        split: (n,) index in `SPLITS`.
        surface: Name of the exact surface in `pipeline_htfbr.data.surfaces`, "" if there is none.
        molecule: Variables as functions of atomic positions, None if unknown.
    """

    coordinates: tuple[Coordinate, ...]
    x: Floats
    energy: Floats
    gradient: Floats | None
    group: NDArray[np.object_]
    split: NDArray[np.int8]
    surface: str = ""
    molecule: Molecule | None = None

    def find_rows(self, *splits: str) -> NDArray[np.int64]:
        """Return the indices of the points in some splits, in order."""
        return np.flatnonzero(np.isin(self.split, [SPLITS.index(name) for name in splits]))


def make_gradient_field(n_coordinates: int) -> Field:
    """Return the field of the gradient."""
    doc = "Derivative of the energy by each coordinate, per unit of the coordinate."
    return Field("gradient", (n_coordinates,), "eV", "sample", "f8", doc, label=True)


def write_points(
    path: Path,
    points: Points,
    provenance: Mapping[str, Any],
    place: Callable[[int], str] | None = None,
) -> None:
    """Write `data.h5`.

    Args:
        path: The file.
        points: Its content.
        provenance: Provenance of the points.
        place: Function that names file and row of a point; None for its group and number.
    """
    d = len(points.coordinates)
    x = Field("x", (d,), "1", "sample", "f8", "Coordinates.", exact=True)
    gradients = [] if points.gradient is None else [make_gradient_field(d)]
    fields = [x, FIELDS["energy"], *gradients, FIELDS["group"], FIELDS["source"]]
    with SampleWriter(path, "data", provenance, fields) as writer:
        for i in range(len(points.x)):
            sample = {
                "x": points.x[i],
                "energy": points.energy[i],
                "group": np.asarray(points.group[i]),
                "source": np.asarray(place(i) if place else f"{points.group[i]}:{i}"),
            }
            if points.gradient is not None:
                sample["gradient"] = points.gradient[i]
            writer.add(sample)
        writer.add_column("split", points.split)
        molecule = points.molecule.to_dict() if points.molecule else None
        writer.attributes["coordinates"] = json.dumps([asdict(c) for c in points.coordinates])
        writer.attributes["surface"] = points.surface
        writer.attributes["molecule"] = json.dumps(molecule)


def read_points(path: Path) -> Points:
    """Read `data.h5`.

    Raises:
        ValueError: It is missing, damaged, or holds no points.
    """
    with SampleFile(path, "data") as file:
        if "coordinates" not in file.attributes:
            raise ValueError(
                f"{path}: holds no points of a surface; give the experiment a dataset with "
                "`plugin: htfbr`"
            )
        molecule = json.loads(file.attributes["molecule"])
        return Points(
            coordinates=tuple(Coordinate(**c) for c in json.loads(file.attributes["coordinates"])),
            x=file.read_column("x"),
            energy=file.read_column("energy"),
            gradient=file.read_column("gradient") if "gradient" in file.fields else None,
            group=file.read_column("group"),
            split=file.read_column("split"),
            surface=str(file.attributes["surface"]),
            molecule=Molecule.from_dict(molecule) if molecule else None,
        )
