"""Derivatives by a parameter of the action: flows, epsilon-reweighting, independent ensembles."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from matplotlib.artist import Artist
from matplotlib.axes import Axes

from pipeline_core.figures import Drawn, Rows, results, style
from pipeline_core.figures.expected import read_paper
from pipeline_core.project.run import ExperimentRun, Run
from pipeline_gauge_flows.figures.runs import Report

CONJUGATE: Final = "conjugate"
"""Name of the derivative of the action by the parameter among the observables."""
ELEMENT: Final = "pion_element"
"""Prefix of `_<t_min>` in the name of the matrix element of Eq. 15."""
_TITLES: Final = {
    "plaquette": "plaquette",
    "plaquette_time": "temporal plaquettes",
    "plaquette_space": "spatial plaquettes",
    "polyakov": "Polyakov loop",
    "polyakov_abs": "|Polyakov loop|",
}
_FLOW, _EPSILON, _INDEPENDENT = style.COLOURS[1], style.COLOURS[0], style.COLOURS[2]
_RATIOS: Final = {
    "same_step": ("error: ε-reweighting, same step", _EPSILON, "o"),
    "best": ("error: ε-reweighting, best step", _EPSILON, "v"),
    "independent": ("error: independent ensembles", _INDEPENDENT, "s"),
}
"""Keys of `error_ratio`: label, colour and marker."""
_SYMBOLS: Final = {"beta": "β", "anisotropy": "λ", "kappa": "κ", "two_kappa_mu": "2κμ"}
"""Symbols of parameters of the action."""
_PAPERS: Final = ("error_ratio_low", "error_ratio_high")


@dataclass(frozen=True)
class Derivatives:
    """Derivatives of a run.

    Attributes:
        run: The run.
        report: Report of the stage `infer`.
    """

    run: Run
    report: Report

    @property
    def observables(self) -> dict[str, Report]:
        """Reports by name, the derivative of the action first."""
        reports: dict[str, Report] = self.report["observables"]
        return reports

    @property
    def pion(self) -> Report | None:
        """Report on the pion; None without one."""
        pion: Report | None = self.report["pion"]
        return pion

    @property
    def headline(self) -> str:
        """Name of the observable in the table of costs."""
        return CONJUGATE if self.pion is None else f"{ELEMENT}_{self.pion['t_min']}"

    @property
    def loops(self) -> dict[str, Report]:
        """Reports on observables of links alone."""
        return {k: one for k, one in self.observables.items() if not k.startswith("pion_")}

    @property
    def shown(self) -> list[str]:
        """Names of the observables with their own panels."""
        liked = [CONJUGATE, "plaquette_time", "plaquette", *self.loops]
        return list(dict.fromkeys(name for name in liked if name in self.loops))[:2]


def read_derivatives(experiment: ExperimentRun) -> list[Derivatives]:
    """Return the runs with derivatives."""
    differentiated = []
    for run in experiment.runs.values():
        group = results.read_attributes(run).get("derivatives")
        if group is not None:
            differentiated.append(Derivatives(run, group["report"]))
    return differentiated


def name_observable(name: str, symbol: str = "λ") -> str:
    """Return the displayed name of an observable; `symbol` is the parameter's."""
    if name == CONJUGATE:
        return f"dS/d{symbol}"
    if name.startswith("wilson_"):
        return f"{name.removeprefix('wilson_').replace('x', '×')} loops"
    return _TITLES.get(name, name.replace("_", " "))


def draw(experiment: ExperimentRun) -> Drawn:
    """Draw two derivatives by all estimators, and the ratios of errors of all observables."""
    differentiated = read_derivatives(experiment)
    if not differentiated:
        return None
    figure, panels = style.make_canvas(
        len(differentiated), 3, width=style.PAGE, height=2.6, width_ratios=(1.15, 1.15, 1)
    )
    table: Rows = [
        ["variant", "observable", "estimator", "part_of_step", "value", "error", "error_over_flow"]
    ]
    for row, one in zip(panels, differentiated, strict=True):
        for axes, name in zip(row, one.shown, strict=False):
            _draw_estimates(axes, one.observables[name])
            symbol = _name_parameter(one.report)
            axes.set_title(f"d⟨{name_observable(name, symbol)}⟩/d{symbol}")
        for axes in row[len(one.shown) : 2]:
            axes.set_axis_off()
        row[0].set_ylabel(f"{one.run.label}\n" * (len(differentiated) > 1) + "derivative")
        _draw_ratios(row[2], one, experiment)
        table += _make_table(one)
    for axes in panels[-1][:2]:
        axes.set_xlabel(f"part of the step {_format_step(differentiated[-1].report)}")
    handles = [*_list_handles(panels[0][0]), *_list_handles(panels[0][2])]
    figure.legend(handles=handles, loc="outside upper left", ncols=3)
    return figure, table


def _list_handles(axes: Axes) -> list[Artist]:
    return list(axes.get_legend_handles_labels()[0])


def _name_parameter(report: Report) -> str:
    return _SYMBOLS[report["parameter"]]


def _format_step(report: Report) -> str:
    return f"{_name_parameter(report)} = {report['start']:g} → {report['end']:g}"


def _draw_estimates(axes: Axes, report: Report) -> None:
    """Draw estimates over the fraction of the step, which is halved from tick to tick."""
    scan = sorted(report["epsilon_scan"], key=lambda one: one["fraction"])
    entries = [report["epsilon_limit"], *scan]
    parts = [0.0, *(one["fraction"] for one in scan)]
    places = list(range(len(entries)))
    _draw_bars(axes, places, entries, _EPSILON, "o", "ε-reweighting")
    end = places[-1]
    _draw_bars(axes, [end + 0.5], [report["flow"]], _FLOW, "D", "flow")
    if report["independent"] is not None:
        _draw_bars(
            axes, [end + 1], [report["independent"]], _INDEPENDENT, "s", "independent ensembles"
        )
    mean = report["ends"]["mean"]
    low, high = mean["value"] - mean["error"], mean["value"] + mean["error"]
    label = "fluctuations, mean of both ends"
    axes.axhspan(low, high, color=style.FAINT, alpha=0.3, zorder=0, label=label)
    if report["known"] is not None:
        look: Report = {"color": style.INK, "linestyle": "--", "linewidth": 0.8}
        axes.axhline(report["known"], label="theory, whole step", **look)
    axes.set_xticks([*places, end + 0.75], [*map(_format_fraction, parts), "1"])
    axes.margins(y=0.12)


def _format_fraction(part: float) -> str:
    inverse = 1 / part if part else 0.0
    whole = inverse > 1 and abs(inverse - round(inverse)) < 1e-9
    return f"1/{round(inverse)}" if whole else f"{part:g}"


def _draw_bars(
    axes: Axes,
    places: Sequence[float],
    entries: Sequence[Mapping[str, Any]],
    colour: str,
    marker: str,
    label: str,
) -> None:
    kept = [(x, one) for x, one in zip(places, entries, strict=True) if one["error"] is not None]
    values, errors = [one["value"] for _, one in kept], [one["error"] for _, one in kept]
    axes.errorbar(
        [x for x, _ in kept], values, errors, fmt=marker, color=colour, capsize=2, label=label
    )


def _draw_ratios(axes: Axes, one: Derivatives, experiment: ExperimentRun) -> None:
    """Draw errors of the other estimators over the flow's error."""
    observables, symbol = one.loops, _name_parameter(one.report)
    for key, (label, colour, marker) in _RATIOS.items():
        points = [
            (ratio, -place)
            for place, report in enumerate(observables.values())
            if (ratio := report["error_ratio"].get(key)) is not None
        ]
        if points:
            x, y = zip(*points, strict=True)
            face = "white" if key == "best" else colour
            axes.plot(x, y, marker, color=colour, markerfacecolor=face, label=label)
    axes.axvline(1, color=style.INK, linewidth=0.7)
    values = read_paper(experiment)
    low, high = (values.get(name) for name in _PAPERS)
    if low is not None and high is not None:
        look: Report = {"color": style.FAINT, "alpha": 0.25, "zorder": 0}
        axes.axvspan(low.value, high.value, label="error: the paper, for the pion", **look)
    axes.set(xscale="log", xlabel="error over that of the flow", title="equal configurations")
    axes.set_yticks(
        [-n for n in range(len(observables))],
        [name_observable(name, symbol) for name in observables],
    )
    style.set_log_ticks(axes.xaxis)
    axes.set_ylim(-len(observables) + 0.4, 0.6)


def _make_table(one: Derivatives) -> Rows:
    table: Rows = []
    for name, report in one.observables.items():
        ours = report["flow"]["error"]
        entries: list[tuple[str, float | None, Mapping[str, Any] | None]] = [
            ("flow", 1.0, report["flow"]),
            ("epsilon_limit", 0.0, report["epsilon_limit"]),
            *(("epsilon", e["fraction"], e) for e in report["epsilon_scan"]),
            ("independent", 1.0, report["independent"]),
            ("fluctuations_mean_of_ends", None, report["ends"]["mean"]),
            ("theory", 1.0, {"value": report["known"], "error": None}),
        ]
        for estimator, part, entry in entries:
            if entry is not None and entry["value"] is not None:
                ratio = entry["error"] / ours if entry["error"] is not None and ours else None
                row = [one.run.variant, name, estimator, part, entry["value"], entry["error"]]
                table.append([*row, ratio])
    return table
