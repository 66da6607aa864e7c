"""Report of the data stage on points: the report file and the summary on the screen."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final

import numpy as np

from pipeline_core.config.datasets import Split
from pipeline_core.data.duplicates import find_first_rows
from pipeline_core.data.splits import count_groups, count_splits, list_empty_splits
from pipeline_core.units import find_factor
from pipeline_htfbr.data.made import Made
from pipeline_htfbr.data.points import Points

_UNITS: Final = ("eV", "hartree", "cm^-1")
_USUAL_RANGE: Final = (1e-6, 1e3)
"""Plausible ranges of energies on one surface, eV; outside, the unit may be wrong"""


def make_report(name: str, made: Made, points: Points, split: Split) -> dict[str, Any]:
    """Return the content of the report file.

    Args:
        name: Name of the dataset.
        made: Result of the source.
        points: The same points with their splits.
        split: Method of the split.
    """
    return {
        "dataset": name,
        "samples": len(points.x),
        "warnings": list(_list_warnings(points, split)),
        "source": dict(made.facts),
        "versions": dict(made.versions),
        "surface": points.surface,
        "gradients": points.gradient is not None,
        "coordinates": [
            asdict(one) | {"least": float(x.min()), "largest": float(x.max())}
            for one, x in zip(points.coordinates, points.x.T, strict=True)
        ],
        "energy": {unit: _compute_statistics(points, unit) for unit in _UNITS},
        "repeated_points": _count_repeated(points),
        "splits": count_splits(points.split),
        "groups": _count_groups(points),
    }


def summarize(content: dict[str, Any]) -> dict[str, Any]:
    """Return the entries of a report that the stage prints at its end."""
    hartree = content["energy"]["hartree"]
    return {
        "samples": content["samples"],
        **content["splits"],
        "coordinates": len(content["coordinates"]),
        "groups": content["groups"]["count"],
        "gradients": content["gradients"],
        "energy_hartree": [hartree["least"], hartree["largest"]],
        "warnings": content["warnings"],
    }


def _compute_statistics(points: Points, unit: str) -> dict[str, float]:
    energy = points.energy / find_factor("energy", unit)
    return {
        "least": float(energy.min()),
        "largest": float(energy.max()),
        "mean": float(energy.mean()),
        "std": float(energy.std()),
    }


def _count_groups(points: Points) -> dict[str, Any]:
    """Return the largest groups and the number of their points in each split."""
    names, group = np.unique(points.group.astype(str), return_inverse=True)
    return count_groups(names.tolist(), group, points.split)


def _count_repeated(points: Points) -> dict[str, Any]:
    """Return the number of repeated points, and the largest difference of their energies."""
    first = find_first_rows(points.x)
    return {
        "points": int(np.count_nonzero(first != np.arange(len(first)))),
        "largest_difference_eV": float(np.abs(points.energy - points.energy[first]).max()),
    }


def _list_warnings(points: Points, split: Split) -> Iterator[str]:
    """Yield warnings about points that were written."""
    repeated = _count_repeated(points)
    if repeated["points"]:
        yield (
            f"{repeated['points']} points equal an earlier one, energies differ by up to "
            f"{repeated['largest_difference_eV']:.3g} eV; equal points are in one split; remove "
            "copies that are not meant"
        )
    spread = float(np.ptp(points.energy))
    if not _USUAL_RANGE[0] <= spread <= _USUAL_RANGE[1]:
        yield f"the energies span {spread:.3g} eV; is their unit right?"
    yield from (
        f"no point is in the split {name!r}" for name in list_empty_splits(points.split, split)
    )
