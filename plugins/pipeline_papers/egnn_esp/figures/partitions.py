"""Figure 5, c and d: costs of domain decomposition into many parts, by method."""

from collections.abc import Sequence
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from pipeline_core.figures import Drawn, style, tabulate
from pipeline_core.project.run import ExperimentRun
from pipeline_papers.egnn_esp.figures.results import choose_style, order_methods, read_study

_PANELS: Final = {
    "neighbours": ("neighbours_mean", "neighbours_max"),
    "atoms received": ("received_mean", "received_max"),
    "edges: max / mean": ("edge_imbalance", None),
    "atoms: max / mean": ("node_imbalance", None),
}
"""Shown numbers: the mean over parts, or the number itself, and the maximum."""


def draw(experiment: ExperimentRun) -> Drawn:
    """Draw means over parts as lines, with bars up to the largest, a row for each cutoff."""
    content = read_study(experiment, "partitions")
    if content is None:
        return None
    records, cutoffs = content["records"], list(content["edges"])
    figure, rows = style.make_canvas(
        len(cutoffs), len(_PANELS), width=style.PAGE, height=2.1, sharex=True
    )
    for row, cutoff in zip(rows, cutoffs, strict=True):
        mine = [one for one in records if f"{one['cutoff']:g}" == cutoff]
        for axes, (title, keys) in zip(row, _PANELS.items(), strict=True):
            _draw_panel(axes, mine, *keys)
            axes.set_ylabel(title)
        edges = content["edges"][cutoff]
        row[0].set_title(f"{content['atoms']:,} atoms, {edges:,} edges within {cutoff} Å")
    for axes in rows[-1]:
        style.set_rank_axis(axes, [one["parts"] for one in records], "parts")
    style.add_legend_above(figure, rows[0][0])
    return figure, tabulate(records)


def _draw_panel(
    axes: Axes, records: Sequence[dict[str, Any]], mean: str, largest: str | None
) -> None:
    for method in order_methods(one["method"] for one in records):
        mine = sorted(
            (one for one in records if one["method"] == method), key=lambda one: one["parts"]
        )
        parts, values = [one["parts"] for one in mine], [one[mean] for one in mine]
        drawn = choose_style(method)
        axes.plot(parts, values, "-", **drawn)
        if largest is not None:
            tops = [one[largest] for one in mine]
            axes.vlines(parts, values, tops, color=drawn["color"], linewidth=0.8)
            axes.plot(parts, tops, "_", color=drawn["color"], markersize=4)
    if largest is None:
        axes.set_ylim(bottom=min(1.0, axes.get_ylim()[0]))
    else:
        axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
