"""Averages by the flow beside theory and an ensemble of the same action."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from pipeline_core.figures import Drawn, Rows, style
from pipeline_core.run import ExperimentRun
from pipeline_gauge_flows.figures import runs
from pipeline_gauge_flows.figures.derivatives import title
from pipeline_gauge_flows.figures.runs import Evaluated

_AGAINST: Final = {"known": ("theory", "o"), "ensemble": ("Markov chains", "s")}
"""Keys of `sigmas`: label and marker."""
_SPREAD: Final = 0.5
"""Height over which the runs of an observable are spread."""


def draw(experiment: ExperimentRun) -> Drawn:
    """Draw the distance of each average from what it should be, in standard errors."""
    found = [one for one in runs.evaluated(experiment) if _compares(one)]
    if not found:
        return None
    names = list(dict.fromkeys(name for one in found for name in one.first["observables"]))
    names = [name for name in names if any(_distances(one, name) for one in found)]
    height = 0.9 + len(names) * max(0.3, 0.09 * len(found))
    figure, ((axes,),) = style.make_canvas(width=style.PAGE, height=height)
    for width, alpha in ((2, 0.12), (1, 0.2)):
        axes.axvspan(-width, width, color=style.FAINT, alpha=alpha, zorder=0, linewidth=0)
    axes.axvline(0, color=style.INK, linewidth=0.7, zorder=0)
    for place, name in enumerate(names):
        for number, one in enumerate(found):
            shift = _SPREAD * (number / max(1, len(found) - 1) - 0.5) if len(found) > 1 else 0
            _points(axes, -place - shift, one, name)
    axes.set_yticks([-n for n in range(len(names))], [title(name) for name in names])
    axes.set_ylim(-len(names) + 0.45, 0.55)
    low, high = axes.get_xlim()
    axes.set_xlim(min(low, -3), max(high, 3))
    axes.set_xlabel("average by the flow less its reference, in standard errors of the difference")
    figure.legend(handles=_handles(experiment, found), loc="outside upper left", ncols=4)
    return figure, _table(found)


def _compares(one: Evaluated) -> bool:
    return any(_distances(one, name) for name in one.first["observables"])


def _distances(one: Evaluated, name: str) -> dict[str, float]:
    report = one.first["observables"].get(name)
    sigmas = report["sigmas"] if report else {}
    return {key: sigmas[key] for key in _AGAINST if sigmas.get(key) is not None}


def _points(axes: Axes, place: float, one: Evaluated, name: str) -> None:
    for key, distance in _distances(one, name).items():
        marker = _AGAINST[key][1]
        face = one.colour if marker == "o" else "white"
        axes.plot(distance, place, marker, color=one.colour, markerfacecolor=face, markersize=3)


def _handles(experiment: ExperimentRun, found: Sequence[Evaluated]) -> list[Line2D]:
    compared = [_distances(one, name) for one in found for name in one.first["observables"]]
    keys = {key for distances in compared for key in distances}
    handles = [
        Line2D(
            [],
            [],
            color=style.INK,
            marker=marker,
            markerfacecolor=style.INK if marker == "o" else "white",
            linestyle="",
            label=f"against {label}",
        )
        for key, (label, marker) in _AGAINST.items()
        if key in keys
    ]
    present = {one.colour for one in found}
    groups = [group for group in runs.groups(experiment) if group.colour in present]
    if len(groups) > 1:
        handles += [
            Line2D([], [], color=group.colour, linewidth=3, label=group.name) for group in groups
        ]
    return handles


def _table(found: Sequence[Evaluated]) -> Rows:
    table: Rows = [["variant", "lattice", "observable", "by", "value", "error", "sigmas"]]
    for one in found:
        for report in one.flow["lattices"]:
            for name, entry in report["observables"].items():
                where = [one.run.variant, runs.extents(report), name]
                table += [[*where, *row] for row in _values(entry)]
    return table


def _values(entry: Mapping[str, Any]) -> Rows:
    found: Rows = [["flow", entry["flow"]["value"], entry["flow"]["error"], None]]
    if entry["chain"] is not None:
        found.append(["chain of proposals", entry["chain"]["mean"], entry["chain"]["error"], None])
    if entry["known"] is not None:
        known = entry["known"]
        found.append(["theory", known["value"], known["uncertainty"], entry["sigmas"]["known"]])
    if entry["ensemble"] is not None:
        theirs, sigmas = entry["ensemble"], entry["sigmas"]["ensemble"]
        found.append(["ensemble", theirs["mean"], theirs["error"], sigmas])
    return found
