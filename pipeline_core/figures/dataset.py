"""The data at a glance: samples of each group by split, and how large the forces are."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from pipeline_core.fields import SPLITS
from pipeline_core.figures import results, style
from pipeline_core.run import ExperimentRun

Floats = NDArray[np.float64]

MOST_GROUPS: Final = 24
"""Groups that have a bar of their own; the others share one."""
_BINS: Final = 40


def draw(experiment: ExperimentRun) -> tuple[Figure, list[list[object]]] | None:
    """Draw the samples of each group by split, and the distribution of the labelled forces."""
    report = results.import_report(experiment)
    if report is None:
        return None
    groups = samples_by_group(report)
    sizes = {s: np.linalg.norm(f, axis=1) for s, f in _labelled_forces(experiment).items()}
    height = max(2.2, 0.9 + 0.16 * len(groups))
    figure, ((*axes,),) = style.canvas(1, 2 if sizes else 1, width=style.PAGE, height=height)
    _group_bars(axes[0], groups)
    axes[0].set_xlabel(results.samples_name(experiment))
    table: list[list[object]] = [["group", *SPLITS]]
    table += [
        [name, *(counts.get(split, 0) for split in SPLITS)] for name, counts in groups.items()
    ]
    if sizes:
        _force_histogram(axes[1], sizes, results.reference_name(experiment))
    return figure, table


def samples_by_group(report: dict[str, Any]) -> dict[str, dict[str, int]]:
    """Return group -> split -> samples; of many groups the largest, and the others as one."""
    listed: dict[str, dict[str, int]] = report["groups"]["largest"]
    if len(listed) <= 1:
        return {"all": report["splits"]}
    if report["groups"]["count"] <= MOST_GROUPS:
        return {name: listed[name] for name in sorted(listed)}
    kept = dict(list(listed.items())[: MOST_GROUPS - 1])
    others = {s: report["splits"][s] - sum(c[s] for c in kept.values()) for s in SPLITS}
    return {**kept, f"{report['groups']['count'] - len(kept)} others": others}


def _labelled_forces(experiment: ExperimentRun) -> dict[str, Floats]:
    """Return the labelled forces of every predicted split, (n_atoms, 3)."""
    found: dict[str, Floats] = {}
    for run in experiment.runs.values():
        for split, (label, _) in results.forces(run).items():
            found.setdefault(split, label)
    return found


def _group_bars(axes: Axes, groups: dict[str, dict[str, int]]) -> None:
    start = np.zeros(len(groups))
    for number, split in enumerate(SPLITS):
        counts = np.asarray([group.get(split, 0) for group in groups.values()])
        if counts.any():
            name = f"{split} ({counts.sum():,})"
            axes.barh(
                range(len(groups)), counts, 0.75, start, color=style.colour(number), label=name
            )
        start += counts
    axes.set_yticks(range(len(groups)), list(groups))
    axes.set_ylim(len(groups) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, borderaxespad=0.2)


def _force_histogram(axes: Axes, sizes: dict[str, Floats], reference: str) -> None:
    edges = np.linspace(0, float(np.quantile(np.concatenate(list(sizes.values())), 0.999)), _BINS)
    for split, values in sizes.items():
        counts, _ = np.histogram(values, edges)
        colour = style.colour(SPLITS.index(split))
        name = f"{split}, mean {values.mean():.2f} eV/Å"
        axes.stairs(counts / len(values), edges, color=colour, label=name, linewidth=1.2)
    axes.set(
        xlabel=f"{reference} force |F| (eV/Å)", ylabel="fraction of atoms", xlim=(0, edges[-1])
    )
    axes.legend(loc="upper right")
