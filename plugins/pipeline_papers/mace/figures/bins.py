"""Figure 12 of the paper: samples of each rank in one step."""

from typing import Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.ticker import MaxNLocator

from pipeline_core.figures import Drawn, Rows, results, style
from pipeline_core.project.run import ExperimentRun

_WAYS: Final = {
    "random": "equal numbers",
    "mace_bins": "algorithm 1 (the paper)",
    "balanced": "ours",
}


def draw(experiment: ExperimentRun) -> Drawn:
    """Draw the first step of an epoch, a bar for each rank and a segment for each sample."""
    entry = _find_forecast(experiment)
    if entry is None:
        return None
    steps = {way: entry[way]["first_step"] for way in _WAYS if entry.get(way, {}).get("first_step")}
    figure, (row,) = style.make_canvas(
        1, len(steps), width=style.PAGE, height=2.6, sharex=True, sharey=True
    )
    largest = max(cost for ranks in steps.values() for costs in ranks for cost in costs)
    for axes, (way, ranks) in zip(row, steps.items(), strict=True):
        _draw_bars(axes, ranks, largest)
        axes.set_title(f"{_WAYS[way]}\n{_summarize(ranks)}")
    row[0].set_ylabel("rank")
    row[0].set_ylim(entry["ranks"] - 0.4, -0.6)
    scale = mpl.cm.ScalarMappable(Normalize(0, largest), "viridis")
    figure.colorbar(scale, ax=row, label="cost of the sample", pad=0.01, aspect=25)
    table: Rows = [["sharing", "rank", "sample", "cost"]]
    table += [
        [way, rank, number, cost]
        for way, ranks in steps.items()
        for rank, costs in enumerate(ranks)
        for number, cost in enumerate(costs)
    ]
    return figure, table


def _find_forecast(experiment: ExperimentRun) -> dict[str, Any] | None:
    """Return the forecast on the most ranks that lists the samples of a step."""
    entries = [
        entry
        for run in experiment.runs.values()
        for entry in results.read_balance(run)
        if any(entry.get(way, {}).get("first_step") for way in _WAYS)
    ]
    most = max(entries, key=lambda entry: entry["ranks"], default=None)
    return most if most is not None and most["ranks"] > 1 else None


def _draw_bars(axes: Axes, ranks: list[list[float]], largest: float) -> None:
    colours = mpl.colormaps["viridis"]
    for rank, costs in enumerate(ranks):
        ordered = np.sort(np.asarray(costs, dtype=np.float64))[::-1]
        starts = np.cumsum(ordered) - ordered
        axes.barh(
            np.full(len(ordered), rank),
            ordered,
            0.72,
            left=starts,
            color=colours(ordered / largest),
            edgecolor="white",
            linewidth=0.5,
        )
    mean = sum(map(sum, ranks)) / len(ranks)
    axes.axvline(mean, color=style.INK, linestyle="--", linewidth=0.8)
    axes.set_yticks(range(len(ranks)))
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("cost of the step")
    axes.xaxis.set_major_locator(MaxNLocator(3))


def _summarize(ranks: list[list[float]]) -> str:
    loads = [sum(costs) for costs in ranks]
    idle = 100 * (1 - np.mean(loads) / max(loads))
    return f"{sum(map(len, ranks))} samples, {idle:.1f} % idle"
