"""Figure of the dataset: samples of each group by split, sizes of forces and of samples."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from pipeline_core.fields import SPLITS
from pipeline_core.figures import Drawn, Rows, predictions, results, style
from pipeline_core.figures.results import ImportReport
from pipeline_core.project.run import ExperimentRun

Floats = NDArray[np.float64]

MOST_GROUPS: Final = 24
"""Groups with a bar of their own; the others share one."""
_BINS: Final = 40
_WIDE: Final = 8  # largest over smallest number of atoms above which the axis is logarithmic
_MANY: Final = 300  # samples in the fullest bin above which the axis is logarithmic
_FEW: Final = 7  # different numbers of atoms that have a tick each


def draw(experiment: ExperimentRun) -> Drawn:
    """Draw the samples of each group by split, and the distributions of forces and of sizes."""
    report = results.read_import_report(experiment)
    if not report.splits:
        return None
    groups = count_by_group(report)
    forces = experiment.extract("forces", lambda: _count_by_force(_read_forces(experiment)))
    atoms = count_by_size(report)
    figure, (left, *others) = _make_panels(len(groups), bool(forces) + bool(atoms))
    samples = results.name_samples(experiment)
    _draw_groups(left, groups)
    left.set_xlabel(samples)
    table: Rows = [["group", *SPLITS]]
    table += [
        [name, *(counts.get(split, 0) for split in SPLITS)] for name, counts in groups.items()
    ]
    if forces:
        _draw_forces(others[0], forces, results.name_reference(experiment))
    if atoms:
        _draw_sizes(others[-1], atoms, samples)
    return figure, table


def _make_panels(n_groups: int, n_others: int) -> tuple[Figure, list[Axes]]:
    """Return a figure with the panel of the groups on the left and up to two on the right."""
    height = max(2.2 * max(1, n_others), 0.9 + 0.16 * n_groups)
    figure = Figure(figsize=(style.PAGE, height), layout="constrained")
    names = [str(number) for number in range(n_others)]
    axes = figure.subplot_mosaic([["groups", name] for name in names] or [["groups"]])
    return figure, [axes[name] for name in ("groups", *names)]


def count_by_size(report: ImportReport) -> dict[str, dict[int, int]]:
    """Return part of the dataset -> number of atoms -> samples; empty if all have the same."""
    sizes = {name: part.sizes for name, part in report.parts.items() if part.sizes}
    different = {atoms for part in sizes.values() for atoms in part}
    return sizes if len(different) > 1 else {}


def count_by_group(report: ImportReport) -> dict[str, dict[str, int]]:
    """Return group -> split -> samples; the largest of many groups, and the others as one.

    Data that a plugin makes itself may have no groups, and splits without samples are not counted.
    """
    largest, total = report.groups.largest, Counter(report.splits)
    if len(largest) <= 1:
        return {"all": dict(total)}
    if report.groups.count <= MOST_GROUPS:
        return {name: largest[name] for name in sorted(largest)}
    kept = dict(list(largest.items())[: MOST_GROUPS - 1])
    for counts in kept.values():
        total.subtract(counts)
    return {**kept, f"{report.groups.count - len(kept)} others": dict(total)}


def _count_by_force(forces: dict[str, Floats]) -> dict[str, Any]:
    """Return the edges of bins of |F|, and for each split counts, number of atoms and mean |F|."""
    if not forces:
        return {}
    sizes = {split: np.linalg.norm(values, axis=1) for split, values in forces.items()}
    edges = np.linspace(0, float(np.quantile(np.concatenate(list(sizes.values())), 0.999)), _BINS)
    return {
        "edges": edges,
        "splits": {
            split: {
                "counts": np.histogram(values, edges)[0],
                "atoms": len(values),
                "mean": float(values.mean()),
            }
            for split, values in sizes.items()
        },
    }


def _read_forces(experiment: ExperimentRun) -> dict[str, Floats]:
    """Return the labelled forces of every predicted split, (n_atoms, 3)."""
    forces: dict[str, Floats] = {}
    for run in experiment.runs.values():
        for split, (label, _) in predictions.read_forces(run).items():
            forces.setdefault(split, label)
    return forces


def _draw_groups(axes: Axes, groups: dict[str, dict[str, int]]) -> None:
    start = np.zeros(len(groups))
    for number, split in enumerate(SPLITS):
        counts = np.asarray([group.get(split, 0) for group in groups.values()])
        if counts.any():
            name = f"{split} ({counts.sum():,})"
            axes.barh(
                range(len(groups)),
                counts,
                0.75,
                start,
                color=style.choose_colour(number),
                label=name,
            )
        start += counts
    axes.set_yticks(range(len(groups)), list(groups))
    axes.set_ylim(len(groups) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1), ncols=3, borderaxespad=0.2, columnspacing=1.0
    )


def _draw_forces(axes: Axes, forces: dict[str, Any], reference: str) -> None:
    edges = forces["edges"]
    for split, one in forces["splits"].items():
        colour = style.choose_colour(SPLITS.index(split))
        name = f"{split}, mean {one['mean']:.2f} eV/Å"
        axes.stairs(one["counts"] / one["atoms"], edges, color=colour, label=name, linewidth=1.2)
    axes.set(
        xlabel=f"{reference} force |F| (eV/Å)", ylabel="fraction of atoms", xlim=(0, edges[-1])
    )
    style.add_legend_with_room(axes)


def _draw_sizes(axes: Axes, sizes: dict[str, dict[int, int]], samples: str) -> None:
    every = sorted({atoms for part in sizes.values() for atoms in part})
    wide = every[-1] > _WIDE * every[0]
    edges = _make_edges(every[0], every[-1], logarithmic=wide)
    most = 0
    for number, (name, part) in enumerate(sizes.items()):
        counts, _ = np.histogram(list(part), edges, weights=list(part.values()))
        most = max(most, int(counts.max()))
        colour = style.choose_colour(len(SPLITS) + number)  # the first ones stand for splits
        label = f"{name} ({sum(part.values()):,})"
        axes.stairs(counts, edges, color=colour, fill=True, alpha=0.25)
        axes.stairs(counts, edges, color=colour, label=label, linewidth=1.0)
    margin = (edges[-1] / edges[0]) ** 0.03 if wide else 1
    axes.set(xlabel="number of atoms", ylabel=samples, xlim=(edges[0] / margin, edges[-1] * margin))
    if wide:
        axes.set_xscale("log")
        style.set_log_ticks(axes.xaxis)
    if len(every) <= _FEW:
        axes.set_xticks(every, [f"{atoms:,}" for atoms in every])
        axes.set_xticks([], minor=True)
    if most > _MANY:
        axes.set_yscale("log")
        axes.set_ylim(bottom=0.7)
        style.set_log_ticks(axes.yaxis)
    else:
        axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    if len(sizes) > 1:
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2)


def _make_edges(smallest: int, largest: int, *, logarithmic: bool) -> Floats:
    """Return the edges of bins, halves of odd numbers, so that each holds whole numbers of atoms.

    On a logarithmic scale bins have equal widths on the axis, but hold at least one number.
    """
    ends = smallest - 0.5, largest + 0.5
    if not logarithmic:
        step = -(-(largest - smallest + 1) // _BINS)
        return np.arange(ends[0], ends[1] + step, step)
    edges = np.geomspace(*ends, _BINS + 1)
    return np.unique(np.floor(edges) + 0.5)
