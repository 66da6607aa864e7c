"""Cuts and stationary points of a surface, read from `run.inference` for figures."""

import json
from dataclasses import dataclass
from typing import Any, Final

import h5py
import numpy as np
from numpy.typing import NDArray

from pipeline_core import units
from pipeline_core.figures.results import open_inference
from pipeline_core.project.run import Run

Floats = NDArray[np.float64]

_SCHEMA: Final = "plugin/htfbr/inference"
_INVERSE_CM: Final = units.find_factor("energy", "cm^-1")


@dataclass(frozen=True)
class Cut:
    """Energies along one coordinate or two.

    Attributes:
        labels: Name and unit of each coordinate.
        axes: Values of each coordinate, (n_i,) each.
        fitted: Energies above the fitted minimum, cm⁻¹, (n_0,) or (n_0, n_1).
        exact: Energies of the exact surface above the same zero; None without one.
    """

    labels: list[str]
    axes: list[Floats]
    fitted: Floats
    exact: Floats | None


@dataclass(frozen=True)
class Stationary:
    """Minima and saddle points of one surface.

    Attributes:
        order: 0 for a minimum, 1 for a saddle point, (n,).
        energy: Energies above the lowest minimum, (n,) cm⁻¹.
        frequencies: (n, d) cm⁻¹, imaginary ones negative; None for a surface without a molecule.
    """

    order: NDArray[np.int64]
    energy: Floats
    frequencies: Floats | None


def read_cuts(run: Run) -> list[Cut]:
    """Return the cuts of a run, those along one coordinate first."""
    with open_inference(run, _SCHEMA) as file:
        if file is None or "cuts" not in file:
            return []
        coordinates = {c["name"]: c["unit"] for c in json.loads(file.attrs["coordinates"])}
        zero = float(file.attrs["minimum_energy"])
        cuts = [_read_cut(group, coordinates, zero) for group in file["cuts"].values()]
    return sorted(cuts, key=lambda cut: len(cut.axes))


def _read_cut(group: h5py.Group, coordinates: dict[str, str], zero: float) -> Cut:
    names = json.loads(group.attrs["coordinates"])
    heights = {
        name: (group[name][:] - zero) / _INVERSE_CM for name in ("fitted", "exact") if name in group
    }
    return Cut(
        [n if (unit := coordinates[n]) == "1" else f"{n} ({unit})" for n in names],
        [group[f"axis_{i}"][:] for i in range(len(names))],
        heights["fitted"],
        heights.get("exact"),
    )


def read_stationary_points(run: Run) -> tuple[Stationary, Stationary | None, list[tuple[int, int]]]:
    """Return the points of the fit, of the exact surface, and the corresponding pairs."""
    nothing = Stationary(np.empty(0, dtype=np.int64), np.empty(0), None)
    with open_inference(run, _SCHEMA) as file:
        if file is None or "stationary" not in file:
            return nothing, None, []
        group = file["stationary"]
        exact = _read_points(group["exact"]) if "exact" in group else None
        pairs: list[Any] = group["pairs"][:].tolist() if "pairs" in group else []
        return _read_points(group["fitted"]), exact, [(i, j) for i, j in pairs]


def _read_points(group: h5py.Group) -> Stationary:
    frequencies = group["frequencies"][:] if "frequencies" in group else None
    return Stationary(group["order"][:], group["relative"][:], frequencies)
