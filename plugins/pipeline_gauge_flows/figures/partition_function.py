"""Log Z between its bounds, by the flow and by theory."""

from collections.abc import Sequence, Set
from typing import Final

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from pipeline_core.figures import Drawn, Rows, style
from pipeline_core.figures.style import INK
from pipeline_core.project.run import ExperimentRun
from pipeline_gauge_flows.figures import runs
from pipeline_gauge_flows.figures.runs import EvaluatedRun, Report

_REFERENCES: Final = {
    "exact": "the exact one",
    "strong coupling": "that of the strong-coupling series",
    "estimated": "its estimate",
}


def draw(experiment: ExperimentRun) -> Drawn:
    """Draw bounds and estimates of all runs, less the value from theory or the flow's estimate."""
    evaluated = runs.list_evaluated(experiment)
    if not evaluated:
        return None
    height = max(1.8, 0.7 + 0.22 * len(evaluated))
    figure, (row,) = style.make_canvas(1, 2, width=style.PAGE, height=height, sharey=True)
    for place, one in enumerate(evaluated):
        _draw_bracket(row[0], -place, one)
        _draw_estimates(row[1], -place, one)
    names = [one.run.label for one in evaluated]
    if len({runs.describe_theory(one.flow) for one in evaluated}) > 1:
        names = [f"{one.run.label}: {runs.describe_theory(one.flow)}" for one in evaluated]
    row[0].set_yticks([-place for place in range(len(evaluated))], names)
    reference = _name_reference(evaluated)
    row[0].set(title="bounds", xlabel=f"log Z less {reference}")
    row[1].set(title="estimates", xlabel=f"log Z less {reference}")
    for axes in row:
        axes.axvline(0, color=style.INK, linewidth=0.7, zorder=0)
        axes.set_ylim(-len(evaluated) + 0.4, 0.6)
    upper = {_check_strict_bound(one) for one in evaluated}
    forward = any(one.first["forward"] is not None for one in evaluated)
    figure.legend(handles=_make_handles(upper, forward), loc="outside upper left", ncols=2)
    return figure, _make_table(evaluated)


def _name_reference(evaluated: Sequence[EvaluatedRun]) -> str:
    ways = {(one.first["log_z"]["known"] or {"how": "estimated"})["how"] for one in evaluated}
    return " or ".join(_REFERENCES[way] for way in sorted(ways))


def _check_strict_bound(one: EvaluatedRun) -> bool:
    """Return True if the upper bound is guaranteed."""
    return bool(one.first["log_z"]["eubo"]["from"] == "ensemble")


def _draw_bracket(axes: Axes, place: float, one: EvaluatedRun) -> None:
    log_z = one.first["log_z"]
    low, middle, high = (log_z[key]["value"] - one.log_z for key in ("elbo", "estimate", "eubo"))
    face = one.colour if _check_strict_bound(one) else "white"
    axes.plot([low, high], [place, place], color=one.colour, linewidth=0.8)
    axes.plot(low, place, ">", color=one.colour)
    axes.plot(middle, place, "o", color=one.colour)
    axes.plot(high, place, "<", color=one.colour, markerfacecolor=face)


def _make_handles(upper: Set[bool], forward: bool) -> list[Line2D]:
    """Return the legend of the upper bounds and estimates that are drawn."""
    marks = [(">", INK, "lower bound"), ("o", INK, "estimate")]
    if True in upper:
        marks.append(("<", INK, "upper bound, by an ensemble"))
    if False in upper:
        marks.append(("<", "white", "upper bound by weights, no guarantee"))
    if forward:
        marks.append(("s", "white", "estimate by an ensemble"))
    return [
        Line2D([], [], color=INK, marker=mark, markerfacecolor=face, linestyle="", label=label)
        for mark, face, label in marks
    ]


def _draw_estimates(axes: Axes, place: float, one: EvaluatedRun) -> None:
    """Draw estimates with their errors, from samples of the flow and from an ensemble."""
    ways = [(one.first["log_z"]["estimate"], "o", 0.0)]
    if one.first["forward"] is not None:
        ways.append((one.first["forward"]["log_z"], "s", -0.22))
    for entry, marker, shift in ways:
        face = one.colour if marker == "o" else "white"
        axes.errorbar(
            entry["value"] - one.log_z,
            place + shift,
            xerr=entry["error"] or 0.0,
            fmt=marker,
            color=one.colour,
            markerfacecolor=face,
            capsize=2,
        )


def _make_table(evaluated: Sequence[EvaluatedRun]) -> Rows:
    table: Rows = [["variant", "lattice", "quantity", "value", "error", "how"]]
    for one in evaluated:
        for report in one.flow["lattices"]:
            for name, entry, how in _list_quantities(report):
                where = [one.run.variant, runs.format_extents(report)]
                table.append([*where, name, entry["value"], entry.get("error"), how])
    return table


def _list_quantities(report: Report) -> list[tuple[str, Report, str]]:
    log_z, kl = report["log_z"], report["kl"]
    quantities = [
        ("elbo", log_z["elbo"], "flow"),
        ("estimate", log_z["estimate"], "flow"),
        ("eubo", log_z["eubo"], log_z["eubo"]["from"]),
        ("kl_reverse", kl["reverse"], kl["log_z"]),
        ("kl_forward", kl["forward"], kl["forward"]["from"]),
    ]
    if report["forward"] is not None:
        quantities.append(("estimate", report["forward"]["log_z"], "ensemble"))
    if log_z["known"] is not None:
        theory = log_z["known"]
        quantities.append(("known", {**theory, "error": theory["uncertainty"]}, theory["how"]))
    return quantities
