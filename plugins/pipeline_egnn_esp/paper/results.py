"""What `profile` wrote of its studies, and how methods of sharing look in all figures."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pipeline_core.figures import results, style
from pipeline_core.run import ExperimentRun

NAMES: Final = {
    "low_nn": "Low-NN",
    "metis": "METIS",
    "metis_volume": "METIS, volume",
    "grid": "grid",
    "auto": "auto",
    "slices": "slices",
}
"""Methods of sharing in their order, as figures call them."""
_LOOKS: Final = {
    "low_nn": (style.COLOURS[0], "o"),
    "metis": (style.COLOURS[6], "x"),
    "metis_volume": (style.COLOURS[3], "+"),
    "grid": (style.COLOURS[2], "s"),
    "auto": (style.COLOURS[1], "D"),
    "slices": (style.COLOURS[4], "v"),
}


@dataclass(frozen=True)
class Domains:
    """Partitions of one structure.

    Attributes:
        positions: (n_atoms, 3) Å
        cell: (3, 3) Å
        parts: Number of parts.
        cutoff: Å
        labels: By method, (n_atoms,).
        traffic: Atoms that a part, the row, receives from another, by method, (n_parts, n_parts).
    """

    positions: NDArray[np.float64]
    cell: NDArray[np.float64]
    parts: int
    cutoff: float
    labels: dict[str, NDArray[np.int64]]
    traffic: dict[str, NDArray[np.int64]]


def read_study(experiment: ExperimentRun, name: str) -> dict[str, Any] | None:
    """Return a study of the first run that has it: throughput, partitions, domains, or scaling."""
    for run in experiment.runs.values():
        content: dict[str, Any] | None = (results.read_profile(run) or {}).get(name)
        if content is not None:
            return content
    return None


def read_domains(experiment: ExperimentRun) -> Domains | None:
    """Return the drawn partitions of the first run that has some."""
    content = read_study(experiment, "domains")
    if content is None:
        return None
    return Domains(
        positions=np.array(content["positions"]),
        cell=np.array(content["cell"]),
        parts=content["parts"],
        cutoff=content["cutoff"],
        labels=_order_by_method(content["labels"]),
        traffic=_order_by_method(content["traffic"]),
    )


def _order_by_method(tables: dict[str, Any]) -> dict[str, NDArray[np.int64]]:
    return {name: np.array(tables[name]) for name in NAMES if name in tables}


def order_methods(methods: Iterable[str]) -> list[str]:
    """Return the methods that are there in the order of all figures."""
    there = set(methods)
    return [name for name in NAMES if name in there]


def choose_style(method: str) -> dict[str, Any]:
    """Return colour, marker and label of a method."""
    colour, marker = _LOOKS[method]
    return {"color": colour, "marker": marker, "label": NAMES[method]}
