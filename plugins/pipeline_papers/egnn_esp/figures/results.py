"""Results of studies from `profile`, and the style of partition methods in all figures."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from pipeline_core.artifacts.extracts import shorten
from pipeline_core.figures import results, style
from pipeline_core.project.run import ExperimentRun
from pipeline_papers.egnn_esp.figures import pictures

NAMES: Final = {
    "low_nn": "Low-NN",
    "metis": "METIS",
    "metis_volume": "METIS, volume",
    "grid": "grid",
    "auto": "auto",
    "slices": "slices",
}
"""Partition methods in their order, with their names in figures."""
_DEPTH: Final = 2.5
"""Depth below the faces to which atoms are drawn, Å; deeper ones would be hidden."""
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
        positions: Positions of the atoms next to the visible faces, in the cell, (n_shown, 3) Å.
        cell: (3, 3) Å
        parts: Number of parts.
        cutoff: Å
        labels: Parts of the same atoms, by method, (n_shown,).
        atoms: Number of atoms of each part, by method, (n_parts,).
        traffic: Atoms that a part, the row, receives from another, by method, (n_parts, n_parts).
    """

    positions: NDArray[np.float64]
    cell: NDArray[np.float64]
    parts: int
    cutoff: float
    labels: dict[str, NDArray[np.int64]]
    atoms: dict[str, NDArray[np.int64]]
    traffic: dict[str, NDArray[np.int64]]


def read_study(experiment: ExperimentRun, name: str) -> dict[str, Any] | None:
    """Return a study of the first run that has it: throughput, partitions, domains, or scaling."""
    for run in experiment.runs.values():
        content: dict[str, Any] | None = (results.read_profile(run) or {}).get(name)
        if content is not None:
            return content
    return None


def read_domains(experiment: ExperimentRun) -> Domains | None:
    """Return the drawn partitions of the first run that has any."""
    content = experiment.extract("domains", lambda: _select_shown(experiment))
    return None if content is None else Domains(**content)


def _select_shown(experiment: ExperimentRun) -> dict[str, Any] | None:
    content = read_study(experiment, "domains")
    if content is None:
        return None
    positions, cell = np.array(content["positions"]), np.array(content["cell"])
    shown = pictures.find_near_faces(positions, cell, _DEPTH)
    labels = _order_by_method(content["labels"])
    return {
        "positions": shorten((positions[shown] @ np.linalg.inv(cell)) % 1.0 @ cell),
        "cell": cell,
        "parts": content["parts"],
        "cutoff": content["cutoff"],
        "labels": {method: one[shown] for method, one in labels.items()},
        "atoms": {m: np.bincount(one, minlength=content["parts"]) for m, one in labels.items()},
        "traffic": _order_by_method(content["traffic"]),
    }


def _order_by_method(tables: dict[str, Any]) -> dict[str, NDArray[np.int64]]:
    return {name: np.array(tables[name]) for name in NAMES if name in tables}


def order_methods(methods: Iterable[str]) -> list[str]:
    """Return the given methods in the order of all figures."""
    there = set(methods)
    return [name for name in NAMES if name in there]


def draw_measured(
    axes: Axes,
    content: Mapping[str, Any],
    records: Sequence[Mapping[str, Any]],
    values: Sequence[float],
    modelled: Sequence[float],
    **look: Any,
) -> None:
    """Draw numbers of measured passes against ranks, hollow where ranks share cores, and a model.

    Args:
        axes: The panel.
        content: The study of scaling.
        records: Its records of the passes.
        values: A number of each pass.
        modelled: The same by the cost model.
        **look: Further arguments of `Axes.plot` for the passes.
    """
    axes.plot([one["ranks"] for one in records], modelled, ":", color=style.INK, linewidth=1)
    colour = style.COLOURS[0]
    for one, value in zip(records, values, strict=True):
        face = colour if one["ranks"] <= content["processors"] else "white"
        look |= {"color": colour, "markerfacecolor": face, "markersize": 4.5}
        axes.plot(one["ranks"], value, "o", **look)


def make_handles() -> list[Artist]:
    """Return the handles that explain `draw_measured`."""
    look: dict[str, Any] = {"color": style.COLOURS[0], "marker": "o", "linestyle": ""}
    hollow = look | {"markerfacecolor": "white", "label": "measured, ranks share cores"}
    return [
        Line2D([], [], label="measured", **look),
        Line2D([], [], **hollow),
        Line2D([], [], color=style.INK, linestyle=":", label="model"),
    ]


def choose_style(method: str) -> dict[str, Any]:
    """Return colour, marker and label of a method."""
    colour, marker = _LOOKS[method]
    return {"color": colour, "marker": marker, "label": NAMES[method]}
