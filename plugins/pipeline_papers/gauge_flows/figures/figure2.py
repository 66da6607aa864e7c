"""Figure 2 of the paper: gluons in the pion by the Feynman-Hellmann relation, over fit ranges."""

from typing import Final

from matplotlib.axes import Axes

from pipeline_core.figures import Drawn, Rows, style
from pipeline_core.figures.expected import read_paper
from pipeline_core.project.run import ExperimentRun
from pipeline_gauge_flows.figures.derivatives import ELEMENT, Derivatives, read_derivatives
from pipeline_gauge_flows.figures.runs import Report

FRACTION: Final = -4 / 3
"""Momentum fraction of gluons, Eq. 17, over the matrix element of Eq. 15."""
_ESTIMATORS: Final = {
    "flow": ("flow", style.COLOURS[1], "s", None),
    "epsilon_best": ("ε-reweighting, best step", style.COLOURS[0], "o", "best"),
    "independent": ("independent ensembles", style.COLOURS[2], "D", "independent"),
}
"""Keys of a report: label, colour, marker, and key of `error_ratio`."""
_SHIFT: Final = 0.15
"""Horizontal distance of points of one range."""


def draw(experiment: ExperimentRun) -> Drawn:
    """Draw momentum fractions, their errors over the error of the flow, and masses."""
    runs = [one for one in read_derivatives(experiment) if one.pion is not None]
    if not runs:
        return None
    figure, panels = style.make_canvas(len(runs), 3, width=style.PAGE, height=2.4)
    table: Rows = [["variant", "t_min", "estimator", "value", "error", "error_over_flow", "mass"]]
    for row, one in zip(panels, runs, strict=True):
        _draw_fractions(row[0], one)
        _draw_ratios(row[1], one, experiment)
        _draw_masses(row[2], one)
        row[0].set_ylabel(f"{one.run.label}\n" * (len(runs) > 1) + _name_quantity(one))
        for axes in row[:2]:
            axes.set_xlabel("t_min of the range")
            axes.set_xticks([mass["t_min"] for mass, _ in _list_ranges(one)])
        table += _make_table(one)
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=3)
    return figure, table


def get_factor(one: Derivatives) -> float:
    """Return the factor from the matrix element of Eq. 15 to the drawn quantity."""
    return FRACTION if one.report["parameter"] == "anisotropy" else 1.0


def _name_quantity(one: Derivatives) -> str:
    by_gluons = one.report["parameter"] == "anisotropy"
    return "momentum fraction of gluons" if by_gluons else "⟨π|dS/dλ|π⟩"


def _list_ranges(one: Derivatives) -> list[tuple[Report, Report]]:
    """Return masses and reports on matrix elements of all ranges."""
    assert one.pion is not None
    masses: list[Report] = one.pion["masses"]
    return [(mass, one.observables[f"{ELEMENT}_{mass['t_min']}"]) for mass in masses]


def _draw_fractions(axes: Axes, one: Derivatives) -> None:
    factor = get_factor(one)
    for place, (key, (label, colour, marker, _)) in enumerate(_ESTIMATORS.items()):
        points = [
            (mass["t_min"] + (place - 1) * _SHIFT, report[key])
            for mass, report in _list_ranges(one)
            if report[key] is not None and report[key]["error"] is not None
        ]
        if points:
            values = [factor * value["value"] for _, value in points]
            errors = [abs(factor) * value["error"] for _, value in points]
            x = [x for x, _ in points]
            look: Report = {"fmt": marker, "color": colour, "capsize": 2}
            axes.errorbar(x, values, errors, label=label, **look)


def _draw_ratios(axes: Axes, one: Derivatives, experiment: ExperimentRun) -> None:
    for _, colour, marker, ratio in _ESTIMATORS.values():
        points = [
            (mass["t_min"], report["error_ratio"][ratio])
            for mass, report in _list_ranges(one)
            if ratio is not None and report["error_ratio"].get(ratio) is not None
        ]
        if points:
            axes.plot(*zip(*points, strict=True), marker, color=colour)
    published = read_paper(experiment)
    low, high = (published.get(name) for name in ("error_ratio_low", "error_ratio_high"))
    if low is not None and high is not None:
        axes.axhspan(low.value, high.value, color=style.FAINT, alpha=0.25, zorder=0)
    axes.axhline(1, color=style.INK, linewidth=0.7)
    axes.set(yscale="log", ylabel="error over that of the flow")
    style.set_log_ticks(axes.yaxis)


def _draw_masses(axes: Axes, one: Derivatives) -> None:
    assert one.pion is not None
    effective = [e for e in one.pion["effective_masses"] if e["error"] is not None]
    masses = [m for m in one.pion["masses"] if m["start"]["error"] is not None]
    axes.errorbar(
        [e["t"] + 0.5 for e in effective],
        [e["value"] for e in effective],
        [e["error"] for e in effective],
        fmt="o", color=style.INK, markerfacecolor="white", capsize=2,
    )  # fmt: skip
    axes.errorbar(
        [m["t_min"] for m in masses],
        [m["start"]["value"] for m in masses],
        [m["start"]["error"] for m in masses],
        fmt="v", color=style.COLOURS[1], capsize=2,
    )  # fmt: skip
    axes.set(xlabel="t (circles), t_min (triangles)", ylabel="mass of the pion")


def _make_table(one: Derivatives) -> Rows:
    table: Rows = []
    factor = get_factor(one)
    for mass, report in _list_ranges(one):
        ours = report["flow"]["error"]
        for key in _ESTIMATORS:
            entry = report[key]
            if entry is None or entry["error"] is None:
                continue
            row: list[object] = [one.run.variant, mass["t_min"], key, factor * entry["value"]]
            error = abs(factor) * entry["error"]
            ratio = entry["error"] / ours if ours else None
            table.append([*row, error, ratio, mass["start"]["value"]])
    return table
