"""Load balance: the share of the ranks' time that waiting for the slowest one would cost."""

from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from pipeline_core.figures import Drawn, Rows, results, style
from pipeline_core.project.run import ExperimentRun

_WAYS: Final = {
    "random": ("equal numbers", ":o"),
    "next_fit": ("next fit (PyG, fairchem)", "--s"),
    "pairing": ("smallest + largest (FastCHGNet)", "--^"),
    "mace_bins": ("iterative packing (MACE)", "-.D"),
    "capped": ("balanced, within a capacity", "-v"),
    "balanced": ("balanced", "-o"),
    "balanced_by_cost": ("balanced, steps of equal cost", ":x"),
}
_REPORTED: Final = ("efficiency", "variation", "padding", "deferred")
_IN_A_ROW: Final = 2
_FINE: Final = 0.1
"""Percentage below which the axis is linear."""


def draw(experiment: ExperimentRun) -> Drawn:
    """Draw the forecast of lost time against the number of ranks, a panel for each forecast."""
    forecasts = _find_distinct(experiment)
    if not forecasts:
        return None
    n_columns = min(len(forecasts), _IN_A_ROW)
    n_rows = -(-len(forecasts) // n_columns)
    figure, rows = style.make_canvas(
        n_rows, n_columns, width=style.COLUMN * n_columns, height=3.3, sharey=True
    )
    panels = [axes for row in rows for axes in row]
    table: Rows = [["variant", "sharing", "ranks", *_REPORTED]]
    for axes, (variant, forecast) in zip(panels, forecasts.items(), strict=False):
        _draw_curves(axes, forecast)
        if len(forecasts) > 1:
            axes.set_title(variant)
        for way in _WAYS:
            reports = [(entry["ranks"], entry[way]) for entry in forecast if way in entry]
            table += [[variant, way, n, *(r[name] for name in _REPORTED)] for n, r in reports]
    for axes in panels[len(forecasts) :]:
        axes.remove()
    _set_percent_axis(panels[0])
    for row in rows:
        row[0].set_ylabel("forecast of time lost (%)")
    style.add_legend_above(figure, max(panels, key=lambda axes: len(axes.lines)))
    return figure, table


def _draw_curves(axes: Axes, forecast: list[dict[str, Any]]) -> None:
    for place, (way, (text, line)) in enumerate(_WAYS.items()):
        shown = [entry for entry in forecast if way in entry]
        lost = [100 * (1 - entry[way]["efficiency"]) for entry in shown]
        if shown:
            ranks, colour = [entry["ranks"] for entry in shown], style.choose_colour(place)
            axes.plot(ranks, lost, line, color=colour, label=text, clip_on=False)
    style.set_rank_axis(axes, [entry["ranks"] for entry in forecast])


def _find_distinct(experiment: ExperimentRun) -> dict[str, list[dict[str, Any]]]:
    """Return the distinct forecasts, each under the first variant that has it."""
    forecasts: dict[str, list[dict[str, Any]]] = {}
    for variant, run in experiment.runs.items():
        forecast = results.read_balance(run)
        if forecast and forecast not in forecasts.values():
            forecasts[variant] = forecast
    return forecasts


def _set_percent_axis(axes: Axes) -> None:
    """Set an axis that includes zero, the value on one rank."""
    axes.set_yscale("symlog", linthresh=_FINE)
    axes.set_ylim(0, 100)
    axes.yaxis.set_major_locator(FixedLocator([0, 0.1, 1, 10, 100]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
