"""Distribution of the weights of a flow, under the flow and under its target."""

from __future__ import annotations

from typing import Final

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from pipeline_core.figures import Drawn, Rows, style
from pipeline_core.run import ExperimentRun
from pipeline_core.samples import SampleFile
from pipeline_gauge_flows.figures import runs
from pipeline_gauge_flows.figures.runs import EvaluatedRun

Floats = NDArray[np.float64]

_MOST_BINS: Final = 60
_FEWEST: Final = 30
"""Configurations of the target below which their histogram says nothing."""
_TAILS: Final = 0.001
"""Part of the samples beyond each end of the axis."""


def draw(experiment: ExperimentRun) -> Drawn:
    """Draw histograms of log w on the lattice of the training, of the first seed of each group."""
    first: dict[str, EvaluatedRun] = {}
    for one in runs.list_evaluated(experiment):
        if one.run.predictions.exists():
            first.setdefault(one.colour, one)
    if not first:
        return None
    histograms = {colour: (one, *_read_log_weights(one)) for colour, one in first.items()}
    everything = np.concatenate([own for _, own, _ in histograms.values()])
    low, high = np.quantile(everything, [_TAILS, 1 - _TAILS])
    span = float(low - 0.05 * (high - low)), float(high + 0.25 * (high - low))
    figure, ((axes,),) = style.make_canvas(width=style.PAGE, height=2.6)
    table: Rows = [["variant", "from", "log_weight_less_log_z", "density"]]
    for one, own, forward in histograms.values():
        tail = one.first["k_hat"]
        k = "" if tail is None else f", Pareto k {tail:.2f}"
        table += _draw_histogram(axes, span, own, one, f"{one.run.label}: flow{k}", "flow")
        if len(forward) >= _FEWEST:
            table += _draw_histogram(axes, span, forward, one, f"{one.run.label}: target", "target")
    axes.axvline(0, color=style.INK, linewidth=0.7, zorder=0)
    axes.set(xlabel="log w − log Z", ylabel="density", yscale="log")
    style.set_log_ticks(axes.yaxis)
    style.add_legend_above(figure, axes)
    return figure, table


def _read_log_weights(one: EvaluatedRun) -> tuple[Floats, Floats]:
    """Return log w - log Z of samples of the flow, and of configurations of the target."""
    with SampleFile(one.run.predictions, "predictions") as file:
        log_weight = file.read_column("log_weight").astype(np.float64) - one.log_z
        here, from_ensemble = file.read_column("lattice") == 0, file.read_column("from_ensemble")
    return log_weight[here & ~from_ensemble], log_weight[here & from_ensemble]


def _draw_histogram(
    axes: Axes,
    span: tuple[float, float],
    values: Floats,
    one: EvaluatedRun,
    label: str,
    source: str,
) -> Rows:
    n_bins = min(_MOST_BINS, int(2 * len(values) ** (1 / 3)))
    edges = np.linspace(*span, n_bins + 1)
    counts, _ = np.histogram(values, edges)
    density = counts / (len(values) * np.diff(edges))
    line = "-" if source == "flow" else ":"
    shown = np.where(density > 0, density, np.nan)
    axes.stairs(shown, edges, color=one.colour, linestyle=line, linewidth=1.1, label=label)
    middles = (edges[1:] + edges[:-1]) / 2
    return [
        [one.run.variant, source, float(x), float(y)] for x, y in zip(middles, density, strict=True)
    ]
