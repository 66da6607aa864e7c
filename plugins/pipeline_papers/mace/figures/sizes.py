"""Figure 5 of the paper: sizes of the samples, and sparsity of their graphs."""

from typing import Any, Final, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from pipeline_core.figures import Drawn, Rows, results, style
from pipeline_core.figures.expected import read_paper
from pipeline_core.project.run import ExperimentRun

Counts = NDArray[np.int64]

TABLE3: Final = {
    "al_hcl": "Al-HCl(aq)",
    "cuni": "CuNi",
    "hea": "HEA",
    "liquid_water": "liquid water",
    "mptrj": "MPtrj",
    "tmd": "TMD",
    "water_clusters": "water clusters",
    "zeolite": "zeolite",
}
"""Data sets of the paper's Table 3, as the ids of `expected.yaml` name them."""


class Range(NamedTuple):
    """Sizes of a data set: number of samples, and range of their atoms."""

    name: str
    samples: int
    least: int
    most: int


def draw(experiment: ExperimentRun) -> Drawn:
    """Draw the ranges of Table 3 with ours, and the edges of our samples."""
    counts = results.read_all_sizes(experiment, ("atom", "edge"))
    if not counts:
        return None
    atoms, edges = counts["atom"], counts["edge"]
    ranges = [
        *_list_published(experiment),
        Range(_name(experiment), len(atoms), atoms.min(), atoms.max()),
    ]
    figure, (row,) = style.make_canvas(1, 3, width=style.PAGE, height=2.6, width_ratios=[1.5, 1, 1])
    _draw_ranges(row[0], ranges)
    row[0].set_title("samples", loc="right")
    _draw_cloud(row[1], atoms, edges / atoms, "edges per atom")
    _draw_cloud(row[2], atoms, edges / atoms**2, "edges / atoms²")
    row[2].set_yscale("log")
    style.set_log_ticks(row[2].yaxis)
    table: Rows = [["set", "samples", "least", "most", "edges", "edges_per_atom"]]
    table += [["paper: " + r.name, r.samples, r.least, r.most, None, None] for r in ranges[:-1]]
    for count, number in zip(*np.unique(atoms, return_counts=True), strict=True):
        mean = float(edges[atoms == count].mean())
        table.append(
            [ranges[-1].name, int(number), int(count), int(count), mean, mean / int(count)]
        )
    return figure, table


def _list_published(experiment: ExperimentRun) -> list[Range]:
    published = read_paper(experiment)
    ranges = []
    for key, name in TABLE3.items():
        if f"table3_{key}_graphs" in published:
            parts = ("graphs", "least", "most")
            ranges.append(Range(name, *(int(published[f"table3_{key}_{p}"].value) for p in parts)))
    return ranges


def _name(experiment: ExperimentRun) -> str:
    dataset = next(iter(experiment.runs.values())).dataset
    return f"here: {dataset.name}" if dataset else "here"


def _draw_ranges(axes: Axes, ranges: list[Range]) -> None:
    for place, one in enumerate(ranges):
        own = place == len(ranges) - 1
        colour = style.COLOURS[0] if own else style.FAINT
        axes.plot([one.least, one.most], [place, place], "-", color=colour, linewidth=4)
        # A set with a single size would have no visible length.
        axes.plot([one.least, one.most], [place, place], "|", color=colour, markersize=6)
        at: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "va": "center"}
        style.annotate(axes, f"{one.samples:,}", (1, place), (-1, 0), ha="right", **at)
    axes.set_yticks(range(len(ranges)), [one.name for one in ranges])
    axes.set_ylim(len(ranges) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.set(xlabel="atoms of a sample", xscale="log")
    axes.set_xlim(0.8, 12_000)  # room for the numbers of samples
    style.set_log_ticks(axes.xaxis)
    axes.set_xticks([1, 10, 100, 1000])


def _draw_cloud(axes: Axes, atoms: Counts, values: NDArray[np.float64], label: str) -> None:
    axes.plot(atoms, values, "o", color=style.COLOURS[0], markersize=2.5, alpha=0.5, mew=0)
    axes.set(xlabel="atoms of a sample", ylabel=label, xscale="log")
    style.set_log_ticks(axes.xaxis)
