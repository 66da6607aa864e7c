"""Load balance: how much of the ranks' time a training step would use."""

from __future__ import annotations

from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from pipeline_core.figures import results, style
from pipeline_core.run import ExperimentRun

_WAYS: Final = {
    "random": ("equal numbers, as shuffled", "--"),
    "lpt": ("balanced", "-"),
    "lpt_equal_cost": ("balanced, steps of equal cost", "-."),
}
_REPORTED: Final = ("efficiency", "variation", "padding")


def draw(experiment: ExperimentRun) -> tuple[Figure, list[list[object]]] | None:
    """Draw the forecast of efficiency against the number of ranks."""
    forecasts = _distinct(experiment)
    if not forecasts:
        return None
    figure, ((axes,),) = style.canvas(height=2.5)
    table: list[list[object]] = [["variant", "sharing", "ranks", *_REPORTED]]
    for number, (variant, forecast) in enumerate(forecasts.items()):
        for place, (way, (text, line)) in enumerate(_WAYS.items()):
            several = len(forecasts) > 1
            colour = style.colour(number if several else place)
            label = f"{variant}: {text}" if several else text
            points = [(entry["ranks"], entry[way]) for entry in forecast if way in entry]
            x, y = [n for n, _ in points], [report["efficiency"] for _, report in points]
            axes.plot(x, y, line, marker="o", color=colour, label=label, clip_on=False)
            table += [[variant, way, n, *(report[k] for k in _REPORTED)] for n, report in points]
    _rank_axis(axes, [entry["ranks"] for forecast in forecasts.values() for entry in forecast])
    axes.set(ylabel="forecast efficiency", ylim=(0, 1.02))
    axes.legend(loc="lower left")
    return figure, table


def _distinct(experiment: ExperimentRun) -> dict[str, list[dict[str, Any]]]:
    """Return the forecasts that differ, each under the first variant that has it."""
    found: dict[str, list[dict[str, Any]]] = {}
    for run in experiment.runs.values():
        forecast = results.balance(run)
        if forecast and forecast not in found.values():
            found[run.variant] = forecast
    return found


def _rank_axis(axes: Axes, ranks: list[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(sorted(set(ranks))))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.set_xlabel("number of ranks")
