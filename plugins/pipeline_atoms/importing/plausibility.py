"""Plausibility checks of frames: wrong columns, wrong units, damaged digits.

Each check measures one number of a frame in the engine's units and names its position; `Limits` of
a dataset file gives the allowed range. Limits are wide: damaged data exceed them, compressed or
broken structures for training do not.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
from ase.data import chemical_symbols, covalent_radii
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from pipeline_atoms.config.datasets import Limits
from pipeline_atoms.edge_counts import estimate_neighbours
from pipeline_atoms.graphs import build_neighbour_graph
from pipeline_atoms.neighbours import fill_cell

Sample = Mapping[str, NDArray[Any]]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_RADII: Final = np.where(np.isfinite(covalent_radii), covalent_radii, 1.5)
_SUM_IS_ZERO: Final = 1e-3
_MOST_IMAGES: Final = 100.0  # neighbours of an atom at a distance where one is too many


class Measure(NamedTuple):
    """A number of a frame, and its name."""

    value: float
    subject: str


class Check(NamedTuple):
    """A plausibility check.

    Attributes:
        limit: Field of `Limits` to compare the number with.
        measure: Function (sample, limit) -> the number, or None if it does not apply.
        unit: Unit of the number.
        least: True if the limit is the smallest good value, False if it is the largest.
    """

    limit: str
    measure: Callable[[Sample, float], Measure | None]
    unit: str
    least: bool = False


_MEANT: Final = "set limits.{} of the source to another value, or null, if it is meant"


def find_implausible(sample: Sample, limits: Limits, cure: str = _MEANT) -> str | None:
    """Return the reason why a frame is implausible, or None.

    Args:
        sample: Structure and its labels, in the engine's units.
        limits: Limits of its source.
        cure: Remedy besides a check of units; {} is the name of the limit.
    """
    for check in CHECKS:
        limit = getattr(limits, check.limit)
        measure = None if limit is None else check.measure(sample, limit)
        if measure is None or (measure.value >= limit if check.least else measure.value <= limit):
            continue
        return (
            f"{measure.subject} is {measure.value:.3g}{check.unit}, "
            f"{'less' if check.least else 'more'} than {limit:g}; check units and columns, or "
            f"{cure.format(check.limit)}"
        )
    return None


def _measure_length(sample: Sample, limit: float) -> Measure | None:
    positions, cell = np.abs(sample["positions"]), np.abs(sample["cell"])
    if positions.max() > limit:
        atom = int(positions.max(axis=1).argmax())
        return Measure(float(positions.max()), f"a coordinate of atom {atom}")
    return Measure(float(cell.max()), "a component of the cell")


def _measure_volume(sample: Sample, _: float) -> Measure | None:
    if not sample["pbc"].all():
        return None
    volume = abs(float(np.linalg.det(sample["cell"]))) / len(sample["positions"])
    return Measure(volume, "the volume of an atom")


def _measure_label(name: str, subject: str) -> Callable[[Sample, float], Measure | None]:
    def measure(sample: Sample, limit: float) -> Measure | None:
        if name not in sample:
            return None
        sizes = np.abs(sample[name])
        largest = float(sizes.max())
        if largest <= limit or sizes.ndim == 0 or name == "stress":
            return Measure(largest, subject)
        atom = int(sizes.reshape(len(sizes), -1).max(axis=1).argmax())
        return Measure(largest, f"{subject} of atom {atom}")

    return measure


def _measure_energy(sample: Sample, _: float) -> Measure | None:
    if "energy" not in sample:
        return None
    return Measure(abs(float(sample["energy"])) / len(sample["positions"]), "the energy of an atom")


def _measure_net_force(sample: Sample, _: float) -> Measure | None:
    """Detect exchanged forces and positions: forces add up to zero, positions seldom do."""
    positions, forces = sample["positions"], sample.get("forces")
    if forces is None or len(positions) < 2 or np.abs(forces).max() < 1.0:
        return None
    if _sum_relative(positions) > _SUM_IS_ZERO:
        return None
    return Measure(
        _sum_relative(forces),
        "the net force over the sum of all forces, where the positions add up to zero as if they "
        "were forces,",
    )


def _sum_relative(vectors: Floats) -> float:
    total = float(np.linalg.norm(vectors, axis=1).sum())
    return math.inf if total == 0 else float(np.linalg.norm(vectors.sum(axis=0))) / total


def _measure_distance(sample: Sample, limit: float) -> Measure | None:
    numbers = sample["atomic_numbers"]
    reach = 2 * limit * float(_RADII[numbers].max())
    pairs = _find_pairs(sample, reach)
    if pairs is None:
        return Measure(0.0, "the nearest distance in a cell that is much smaller than an atom")
    i, j, distance = pairs
    if len(distance) == 0:
        return None
    ratio = distance / (_RADII[numbers[i]] + _RADII[numbers[j]])
    pair = int(ratio.argmin())
    a, b = int(i[pair]), int(j[pair])
    names = f"{a} ({chemical_symbols[numbers[a]]}) and {b} ({chemical_symbols[numbers[b]]})"
    return Measure(
        float(ratio[pair]),
        f"the distance of atoms {names}, {distance[pair]:.3g} Å, over their covalent radii",
    )


def _find_pairs(sample: Sample, reach: float) -> tuple[Ints, Ints, Floats] | None:
    """Return atoms and distances of all pairs within `reach`; None if there are too many images."""
    positions, pbc = sample["positions"], sample["pbc"]
    cell = fill_cell(sample["cell"], pbc) if pbc.any() else np.eye(3)
    inverse = np.linalg.inv(cell)
    margins = reach * np.sqrt(np.square(inverse).sum(axis=0))  # relative to the heights of the cell
    if (pbc & (margins >= 1)).any():
        if estimate_neighbours(len(positions), cell, pbc, reach) > _MOST_IMAGES:
            return None
        index, _, distance = build_neighbour_graph(positions, cell, pbc, reach)
        return index[:, 0], index[:, 1], distance
    fractions = positions @ inverse
    fractions -= np.where(pbc, np.floor(fractions), 0.0)
    atoms = np.arange(len(positions))
    for axis in np.flatnonzero(pbc):  # atoms near one face have an image beyond the opposite face
        near = np.flatnonzero(fractions[:, axis] < margins[axis])
        fractions = np.concatenate([fractions, fractions[near] + np.eye(3)[axis]])
        atoms = np.concatenate([atoms, atoms[near]])
    points = fractions @ cell
    i, j = cKDTree(points).query_pairs(reach, output_type="ndarray").T
    return atoms[i], atoms[j], np.linalg.norm(points[i] - points[j], axis=1)


CHECKS: Final = (  # in this order: the last check needs numbers that passed the others
    Check("length", _measure_length, " Å"),
    Check("volume", _measure_volume, " Å³", least=True),
    Check("energy", _measure_energy, " eV"),
    Check("force", _measure_label("forces", "a component of the force"), " eV/Å"),
    Check("stress", _measure_label("stress", "a component of the stress"), " eV/Å³"),
    Check("magmom", _measure_label("magmoms", "the magnetic moment"), " µB"),
    Check("net_force", _measure_net_force, ""),
    Check("distance", _measure_distance, "", least=True),
)
