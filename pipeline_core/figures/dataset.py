"""Figure of the dataset: samples of each group by split."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from pipeline_core.fields import SPLITS
from pipeline_core.figures import Drawn, Rows, results, style
from pipeline_core.figures.results import ImportReport
from pipeline_core.project.run import ExperimentRun

Panel = Callable[[Axes], None]
"""A function that draws a panel beside that of the groups."""

MOST_GROUPS: Final = 24
"""Groups with a bar of their own; the others share one."""


def draw(experiment: ExperimentRun, others: Iterable[Panel] = ()) -> Drawn:
    """Draw the samples of each group by split, and up to two other panels on the right."""
    report = results.read_import_report(experiment)
    if not report.splits:
        return None
    groups = count_by_group(report)
    panels = list(others)
    figure, (left, *right) = _make_panels(len(groups), len(panels))
    _draw_groups(left, groups)
    left.set_xlabel(results.name_samples(experiment))
    table: Rows = [["group", *SPLITS]]
    table += [
        [name, *(counts.get(split, 0) for split in SPLITS)] for name, counts in groups.items()
    ]
    for axes, panel in zip(right, panels, strict=True):
        panel(axes)
    return figure, table


def _make_panels(n_groups: int, n_others: int) -> tuple[Figure, list[Axes]]:
    """Return a figure with the panel of the groups on the left and up to two on the right."""
    height = max(2.2 * max(1, n_others), 0.9 + 0.16 * n_groups)
    figure = Figure(figsize=(style.PAGE, height), layout="constrained")
    names = [str(number) for number in range(n_others)]
    axes = figure.subplot_mosaic([["groups", name] for name in names] or [["groups"]])
    return figure, [axes[name] for name in ("groups", *names)]


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
