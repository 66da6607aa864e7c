"""Distribution of the weights of a flow, under the flow and under its target."""

from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from pipeline_core.artifacts.samples import SampleFile
from pipeline_core.figures import Drawn, Rows, style
from pipeline_core.project.run import ExperimentRun
from pipeline_gauge_flows.figures import runs
from pipeline_gauge_flows.figures.runs import EvaluatedRun

Floats = NDArray[np.float64]
Span = tuple[float, float]

_MOST_BINS: Final = 60
_FEWEST: Final = 30
"""Fewest configurations of the target for a histogram."""
_TAILS: Final = 0.001
"""Fraction of the samples beyond each end of the axis."""


def draw(experiment: ExperimentRun) -> Drawn:
    """Draw histograms of log w on the lattice of the training, of the first seed of each group."""
    evaluated = {one.run.variant: one for one in runs.list_evaluated(experiment)}
    shown = experiment.extract("weights", lambda: _count(list(evaluated.values())))
    if shown is None:
        return None
    figure, ((axes,),) = style.make_canvas(width=style.PAGE, height=2.6)
    table: Rows = [["variant", "from", "log_weight_less_log_z", "density"]]
    for one in shown["histograms"]:
        table += _draw_histogram(axes, evaluated[one["variant"]], one, shown["span"])
    axes.axvline(0, color=style.INK, linewidth=0.7, zorder=0)
    axes.set(xlabel="log w − log Z", ylabel="density", yscale="log")
    style.set_log_ticks(axes.yaxis)
    style.add_legend_above(figure, axes)
    return figure, table


def _count(evaluated: list[EvaluatedRun]) -> dict[str, Any] | None:
    """Return the span of the axis and the histograms on it; None without predictions."""
    first: dict[str, EvaluatedRun] = {}
    for one in evaluated:
        if one.run.predictions.exists():
            first.setdefault(one.colour, one)
    if not first:
        return None
    values = [(one.run.variant, *_read_log_weights(one)) for one in first.values()]
    everything = np.concatenate([own for _, own, _ in values])
    low, high = np.quantile(everything, [_TAILS, 1 - _TAILS])
    span = float(low - 0.05 * (high - low)), float(high + 0.25 * (high - low))
    histograms = []
    for variant, own, forward in values:
        histograms.append({"variant": variant, "of": "flow", "density": _bin(own, span)})
        if len(forward) >= _FEWEST:
            density = _bin(forward, span)
            histograms.append({"variant": variant, "of": "target", "density": density})
    return {"span": span, "histograms": histograms}


def _read_log_weights(one: EvaluatedRun) -> tuple[Floats, Floats]:
    """Return log w - log Z of samples of the flow, and of configurations of the target."""
    with SampleFile(one.run.predictions, "predictions") as file:
        log_weight = file.read_column("log_weight").astype(np.float64) - one.log_z
        here, from_ensemble = file.read_column("lattice") == 0, file.read_column("from_ensemble")
    return log_weight[here & ~from_ensemble], log_weight[here & from_ensemble]


def _bin(values: Floats, span: Span) -> Floats:
    n_bins = min(_MOST_BINS, int(2 * len(values) ** (1 / 3)))
    counts, edges = np.histogram(values, np.linspace(span[0], span[1], n_bins + 1))
    return np.asarray(counts / (len(values) * np.diff(edges)))


def _draw_histogram(axes: Axes, one: EvaluatedRun, histogram: dict[str, Any], span: Span) -> Rows:
    density, source = histogram["density"], histogram["of"]
    edges = np.linspace(span[0], span[1], len(density) + 1)
    tail = one.first["k_hat"]
    k = "" if tail is None or source == "target" else f", Pareto k {tail:.2f}"
    look: dict[str, Any] = {
        "color": one.colour,
        "linestyle": "-" if source == "flow" else ":",
        "linewidth": 1.1,
    }
    shown = np.where(density > 0, density, np.nan)
    axes.stairs(shown, edges, label=f"{one.run.label}: {source}{k}", **look)
    middles = (edges[1:] + edges[:-1]) / 2
    return [
        [one.run.variant, source, float(x), float(y)] for x, y in zip(middles, density, strict=True)
    ]
