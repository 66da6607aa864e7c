"""Figure 5 of the paper: numbers of atoms, bonds and angles of the samples."""

from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from pipeline_core.figures import Drawn, Rows, results, style
from pipeline_core.project.run import ExperimentRun

Counts = NDArray[np.int64]

_BINS: Final = 40
_QUANTILES: Final = (0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


def draw(experiment: ExperimentRun) -> Drawn:
    """Draw a histogram of each kind, of all splits together."""
    sizes = results.read_all_sizes(experiment, ("atom", "edge", "angle"))
    if not sizes:
        return None
    counts = {"atoms": sizes["atom"], "bonds": sizes["edge"] // 2, "angles": sizes["angle"]}
    figure, (row,) = style.make_canvas(1, len(counts), width=style.PAGE, height=2.2)
    for number, (axes, (kind, values)) in enumerate(zip(row, counts.items(), strict=True)):
        _draw_histogram(axes, values, style.choose_colour(number))
        axes.set_xlabel(f"{kind} of a sample")
    row[0].set_ylabel("samples")
    header: list[object] = ["kind", "samples", "mean", *(f"quantile_{q:g}" for q in _QUANTILES)]
    table: Rows = [
        [kind, len(values), float(values.mean()), *np.quantile(values, _QUANTILES).tolist()]
        for kind, values in counts.items()
    ]
    return figure, [header, *table]


def _draw_histogram(axes: Axes, values: Counts, colour: str) -> None:
    numbers, edges = np.histogram(values, _BINS)
    axes.stairs(numbers, edges, fill=True, color=colour, alpha=0.8)
    axes.axvline(float(values.mean()), color=style.INK, linestyle="--", linewidth=0.8)
    axes.set_yscale("log")
    axes.set_ylim(bottom=0.7)
    style.set_log_ticks(axes.yaxis)
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
