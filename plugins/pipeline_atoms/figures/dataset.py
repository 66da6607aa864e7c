"""Figure of a dataset of structures: samples of each group, sizes of forces and of structures."""

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from pipeline_atoms.figures.errors import read_forces
from pipeline_core.fields import SPLITS
from pipeline_core.figures import Drawn, dataset, results, style
from pipeline_core.figures.results import ImportReport
from pipeline_core.project.run import ExperimentRun

Floats = NDArray[np.float64]

_BINS: Final = 40
_WIDE: Final = 8  # largest over smallest number of atoms above which the axis is logarithmic
_MANY: Final = 300  # samples in the fullest bin above which the axis is logarithmic
_FEW: Final = 7  # different numbers of atoms that have a tick each


def draw(experiment: ExperimentRun) -> Drawn:
    """Draw the samples of each group by split, and the distributions of forces and of sizes."""
    return dataset.draw(experiment, _list_panels(experiment))


def _list_panels(experiment: ExperimentRun) -> Iterator[dataset.Panel]:
    """Yield the panels beside the groups."""
    forces = experiment.extract("forces", lambda: _count_by_force(_read_forces(experiment)))
    if forces:
        reference = results.name_reference(experiment)
        yield partial(_draw_forces, forces=forces, reference=reference)
    if atoms := count_by_size(results.read_import_report(experiment)):
        yield partial(_draw_sizes, sizes=atoms, samples=results.name_samples(experiment))


def count_by_size(report: ImportReport) -> dict[str, dict[int, int]]:
    """Return part of the dataset -> number of atoms -> samples; empty if all have the same."""
    sizes = {name: part.sizes for name, part in report.parts.items() if part.sizes}
    different = {atoms for part in sizes.values() for atoms in part}
    return sizes if len(different) > 1 else {}


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
        for split, (label, _) in read_forces(run).items():
            forces.setdefault(split, label)
    return forces


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
