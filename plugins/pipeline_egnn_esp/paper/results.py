"""What `infer` wrote of its studies, and how methods of sharing look in all figures."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import h5py
import numpy as np
from numpy.typing import NDArray

from pipeline_core import store
from pipeline_core.figures import style
from pipeline_core.run import ExperimentRun, Run
from pipeline_egnn_esp.inference import SCHEMA

NAMES: Final = {
    "low_nn": "Low-NN",
    "metis": "METIS",
    "metis_volume": "METIS, volume",
    "grid": "grid",
    "auto": "auto",
}
"""Methods of sharing in their order, as figures call them."""
_LOOKS: Final = {
    "low_nn": (style.COLOURS[0], "o"),
    "metis": (style.COLOURS[6], "x"),
    "metis_volume": (style.COLOURS[3], "+"),
    "grid": (style.COLOURS[2], "s"),
    "auto": (style.COLOURS[1], "D"),
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
    """Return a study of the first run that has it: throughput, partitions, or scaling."""
    for run in experiment.runs.values():
        if run.inference.exists():
            with store.open_artifact(run.inference, SCHEMA) as file:
                data = file.get(f"studies/{name}")
                if data is not None:
                    content: dict[str, Any] = json.loads(data[()])
                    return content
    return None


def read_domains(experiment: ExperimentRun) -> Domains | None:
    """Return the drawn partitions of the first run that has some."""
    for run in experiment.runs.values():
        stored = _read_run(run)
        if stored is not None:
            return stored
    return None


def _read_run(run: Run) -> Domains | None:
    if not run.inference.exists():
        return None
    with store.open_artifact(run.inference, SCHEMA) as file, store.explain_damage(run.inference):
        group = file.get("studies/domains")
        if group is None:
            return None
        return Domains(
            positions=group["positions"][()].astype(np.float64),
            cell=group["cell"][()],
            parts=int(group.attrs["parts"]),
            cutoff=float(group.attrs["cutoff"]),
            labels=_read_by_method(group["labels"]),
            traffic=_read_by_method(group["traffic"]),
        )


def _read_by_method(group: h5py.Group) -> dict[str, NDArray[np.int64]]:
    return {name: group[name][()].astype(np.int64) for name in NAMES if name in group}


def order_methods(methods: Iterable[str]) -> list[str]:
    """Return the methods that are there in the order of all figures."""
    there = set(methods)
    return [name for name in NAMES if name in there]


def choose_style(method: str) -> dict[str, Any]:
    """Return colour, marker and label of a method."""
    colour, marker = _LOOKS[method]
    return {"color": colour, "marker": marker, "label": NAMES[method]}
