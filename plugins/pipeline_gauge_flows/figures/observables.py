"""Averages by the flow compared with theory and an ensemble of the same action."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from pipeline_core.figures import Drawn, Rows, style
from pipeline_core.project.run import ExperimentRun
from pipeline_gauge_flows.figures import runs
from pipeline_gauge_flows.figures.derivatives import name_observable
from pipeline_gauge_flows.figures.runs import EvaluatedRun

_AGAINST: Final = {"known": ("theory", "o"), "ensemble": ("Markov chains", "s")}
"""Keys of `sigmas`: label and marker."""
_SPREAD: Final = 0.5
"""Height over which the runs of an observable are spread."""


def draw(experiment: ExperimentRun) -> Drawn:
    """Draw the deviation of each average from its reference, in standard errors."""
    compared = [
        one
        for one in runs.list_evaluated(experiment)
        if any(_select_distances(one, name) for name in one.first["observables"])
    ]
    if not compared:
        return None
    names = list(dict.fromkeys(name for one in compared for name in one.first["observables"]))
    names = [name for name in names if any(_select_distances(one, name) for one in compared)]
    height = 0.9 + len(names) * max(0.3, 0.09 * len(compared))
    figure, ((axes,),) = style.make_canvas(width=style.PAGE, height=height)
    for width, alpha in ((2, 0.12), (1, 0.2)):
        axes.axvspan(-width, width, color=style.FAINT, alpha=alpha, zorder=0, linewidth=0)
    axes.axvline(0, color=style.INK, linewidth=0.7, zorder=0)
    for place, name in enumerate(names):
        for number, one in enumerate(compared):
            shift = _SPREAD * (number / max(1, len(compared) - 1) - 0.5) if len(compared) > 1 else 0
            _draw_points(axes, -place - shift, one, name)
    axes.set_yticks([-n for n in range(len(names))], [name_observable(name) for name in names])
    axes.set_ylim(-len(names) + 0.45, 0.55)
    low, high = axes.get_xlim()
    axes.set_xlim(min(low, -3), max(high, 3))
    axes.set_xlabel("average by the flow less its reference, in standard errors of the difference")
    figure.legend(handles=_make_handles(experiment, compared), loc="outside upper left", ncols=4)
    return figure, _make_table(compared)


def _select_distances(one: EvaluatedRun, name: str) -> dict[str, float]:
    report = one.first["observables"].get(name)
    sigmas = report["sigmas"] if report else {}
    return {key: sigmas[key] for key in _AGAINST if sigmas.get(key) is not None}


def _draw_points(axes: Axes, place: float, one: EvaluatedRun, name: str) -> None:
    for key, distance in _select_distances(one, name).items():
        marker = _AGAINST[key][1]
        face = one.colour if marker == "o" else "white"
        axes.plot(distance, place, marker, color=one.colour, markerfacecolor=face, markersize=3)


def _make_handles(experiment: ExperimentRun, runs_shown: Sequence[EvaluatedRun]) -> list[Line2D]:
    keys = {
        key
        for one in runs_shown
        for name in one.first["observables"]
        for key in _select_distances(one, name)
    }
    look: dict[str, Any] = {"color": style.INK, "linestyle": ""}
    handles = [
        Line2D([], [], marker=marker, markerfacecolor=face, label=f"against {label}", **look)
        for key, (label, marker) in _AGAINST.items()
        if key in keys and (face := style.INK if marker == "o" else "white")
    ]
    present = {one.colour for one in runs_shown}
    groups = [group for group in runs.group_runs(experiment) if group.colour in present]
    if len(groups) > 1:
        handles += [
            Line2D([], [], color=group.colour, linewidth=3, label=group.name) for group in groups
        ]
    return handles


def _make_table(compared: Sequence[EvaluatedRun]) -> Rows:
    table: Rows = [["variant", "lattice", "observable", "by", "value", "error", "sigmas"]]
    for one in compared:
        for report in one.flow["lattices"]:
            for name, entry in report["observables"].items():
                where = [one.run.variant, runs.format_extents(report), name]
                table += [[*where, *row] for row in _list_values(entry)]
    return table


def _list_values(entry: Mapping[str, Any]) -> Rows:
    rows: Rows = [["flow", entry["flow"]["value"], entry["flow"]["error"], None]]
    if entry["chain"] is not None:
        rows.append(["chain of proposals", entry["chain"]["mean"], entry["chain"]["error"], None])
    if entry["known"] is not None:
        theory = entry["known"]
        rows.append(["theory", theory["value"], theory["uncertainty"], entry["sigmas"]["known"]])
    if entry["ensemble"] is not None:
        theirs, sigmas = entry["ensemble"], entry["sigmas"]["ensemble"]
        rows.append(["ensemble", theirs["mean"], theirs["error"], sigmas])
    return rows
