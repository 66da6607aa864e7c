"""Figures 6, 7, 8 and 10 of the paper: speed-ups, strong and weak scaling."""

from collections.abc import Sequence
from typing import Any, Final, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from pipeline_core.figures import Drawn, Rows, style
from pipeline_core.project.run import ExperimentRun
from pipeline_papers.mace.figures.configurations import (
    BASELINE,
    BOTH,
    CONFIGURATIONS,
    Configuration,
)
from pipeline_papers.mace.figures.epochs import (
    Point,
    Status,
    compute_speedups,
    compute_strong_efficiencies,
    compute_weak_efficiencies,
    find_first_points,
    list_measured,
    list_projected,
    list_published,
    list_published_efficiencies,
)

_LINES: Final[dict[Status, Literal["-", "--", "none"]]] = {
    "measured": "-",
    "projected": "--",
    "paper": "none",
}
_EXPLAINED: Final[dict[Status, str]] = {
    "measured": "measured here",
    "projected": "projected from the measured cost model",
    "paper": "the paper, A100 (both: +)",
}


def draw_ablation(experiment: ExperimentRun) -> Drawn:
    """Draw Figure 6: speed-up of an epoch by algorithm 1, fused kernels, both, and ours."""
    points = compute_speedups(list_measured(experiment))
    if not any(point.configuration != BASELINE for point in points):
        return None
    ranks = sorted({point.ranks for point in points})
    figure, ((axes,),) = style.make_canvas(width=style.COLUMN, height=2.4)
    for configuration in CONFIGURATIONS:
        mine = [point for point in points if point.configuration == configuration]
        if mine:
            _draw_bars(axes, configuration, mine, ranks)
    axes.axhline(1, color=style.FAINT, linewidth=0.6, zorder=0)
    names = [f"{n} rank{'s' if n > 1 else ''}" for n in ranks]
    axes.set_xticks(range(len(ranks)), names)
    axes.tick_params(axis="x", length=0)
    axes.set_ylabel("speed-up over baseline")
    axes.margins(y=0.1)
    style.add_legend_above(figure, axes)
    header: list[object] = ["configuration", "ranks", "speedup", "status"]
    return figure, [header, *([p.configuration.name, p.ranks, p.value, p.status] for p in points)]


def _draw_bars(
    axes: Axes, configuration: Configuration, points: Sequence[Point], ranks: list[int]
) -> None:
    shift = 0.17 * (CONFIGURATIONS.index(configuration) - (len(CONFIGURATIONS) - 1) / 2)
    places = [ranks.index(point.ranks) + shift for point in points]
    heights = [point.value for point in points]
    bars = axes.bar(
        places,
        heights,
        0.15,
        color=configuration.colour,
        hatch=configuration.hatch,
        edgecolor="white",
        label=configuration.name,
    )
    axes.bar_label(bars, fmt="%.2f", padding=1, fontsize=6)


def draw_strong(experiment: ExperimentRun) -> Drawn:
    """Draw Figure 7: time of an epoch against the number of ranks."""
    panels: list[tuple[str, str, float, list[Point]]] = [
        ("measured here", "epoch (s)", 1, list_measured(experiment)),
        ("projected", "epoch (h)", 3600, list_projected(experiment, "strong")),
        ("the paper, A100", "epoch (min)", 60, list_published(experiment)),
    ]
    shown = [panel for panel in panels if panel[3]]
    if len({point.configuration for *_, points in panels[:2] for point in points}) < 2:
        return None
    widths = [1.0 if points[0].status == "measured" else 1.6 for *_, points in shown]
    figure, (row,) = style.make_canvas(
        1, len(shown), width=style.PAGE, height=2.7, width_ratios=widths
    )
    for axes, (title, label, unit, points) in zip(row, shown, strict=True):
        _draw_curves(axes, [point._replace(value=point.value / unit) for point in points])
        axes.set(title=title, ylabel=label, yscale="log")
        _draw_ideal(axes, points, unit)
        style.set_rank_axis(axes, [point.ranks for point in points])
        style.set_log_ticks(axes.yaxis)
    _add_legend(figure, [point for *_, points in shown for point in points], ideal=True)
    header: list[object] = ["configuration", "status", "ranks", "seconds"]
    everything = [point for *_, points in panels for point in points]
    return figure, [
        header,
        *([p.configuration.name, p.status, p.ranks, p.value] for p in everything),
    ]


def draw_speedup(experiment: ExperimentRun) -> Drawn:
    """Draw Figure 8: speed-up over the baseline and strong-scaling efficiency."""
    strong = list_projected(experiment, "strong")
    gains = [*compute_speedups(list_measured(experiment)), *compute_speedups(strong)]
    if not any(point.configuration != BASELINE for point in gains):
        return None
    gains += [
        p for p in compute_speedups(list_published(experiment)) if p.configuration != BASELINE
    ]
    kept = [*compute_strong_efficiencies(strong), *list_published_efficiencies(experiment)]
    figure, (row,) = style.make_canvas(1, 2 if strong else 1, width=style.PAGE, height=2.7)
    _draw_curves(row[0], gains)
    row[0].set(ylabel="speed-up over baseline")
    row[0].set_ylim(bottom=0)
    style.set_rank_axis(row[0], [point.ranks for point in gains])
    if strong:
        _draw_curves(row[1], [p._replace(value=100 * p.value) for p in kept])
        fewest = min(point.ranks for point in strong)
        row[1].set(ylabel=f"efficiency from {fewest} ranks (%)")
        _set_percent_ticks(row[1])
        style.set_rank_axis(row[1], [point.ranks for point in kept])
    _add_legend(figure, [*gains, *kept])
    table: Rows = [["quantity", "configuration", "status", "ranks", "value"]]
    for name, points in (("speedup", gains), ("efficiency", kept)):
        table += [[name, p.configuration.name, p.status, p.ranks, p.value] for p in points]
    return figure, table


def draw_weak(experiment: ExperimentRun) -> Drawn:
    """Draw Figure 10: ranks and samples grow together."""
    points = list_projected(experiment, "weak")
    if not points:
        return None
    figure, (row,) = style.make_canvas(1, 2, width=style.PAGE, height=2.5)
    _draw_curves(row[0], [point._replace(value=point.value / 3600) for point in points])
    row[0].set(ylabel="epoch (h)", yscale="log")
    style.set_log_ticks(row[0].yaxis)
    efficiencies = compute_weak_efficiencies(points)
    _draw_curves(row[1], [point._replace(value=100 * point.value) for point in efficiencies])
    row[1].set(ylabel="efficiency (%)")
    _set_percent_ticks(row[1])
    for axes in row:
        style.set_rank_axis(axes, [point.ranks for point in points])
    _add_legend(figure, points)
    table: Rows = [["configuration", "status", "ranks", "samples", "seconds", "efficiency"]]
    for point, efficiency in zip(points, efficiencies, strict=True):
        facts = [point.status, point.ranks, point.samples, point.value]
        table.append([point.configuration.name, *facts, efficiency.value])
    return figure, table


def _draw_curves(axes: Axes, points: Sequence[Point]) -> None:
    """Draw measured times filled, projected ones open and dashed, the paper's times as crosses."""
    for key in dict.fromkeys((p.configuration, p.status) for p in points):
        configuration, status = key
        mine = [p for p in points if (p.configuration, p.status) == key]
        axes.plot(
            [p.ranks for p in mine],
            [p.value for p in mine],
            linestyle=_LINES[status],
            color=configuration.colour,
            linewidth=1.0,
            clip_on=False,
            **_choose_marker(configuration, status),
        )


def _choose_marker(configuration: Configuration, status: Status) -> dict[str, Any]:
    if status == "paper":
        return {"marker": "+" if configuration == BOTH else "x", "markersize": 6}
    face = "white" if status == "projected" else configuration.colour
    return {"marker": configuration.marker, "markerfacecolor": face}


def _draw_ideal(axes: Axes, points: Sequence[Point], unit: float) -> None:
    """Draw the times of a perfect division of the work of the fastest configuration."""
    first = min(find_first_points(points).values(), key=lambda p: p.value * p.ranks)
    most = max(point.ranks for point in points)
    work = first.value * first.ranks / unit
    ranks = [first.ranks, most]
    axes.plot(ranks, [work / n for n in ranks], ":", color=style.FAINT, linewidth=0.8, zorder=0)


def _set_percent_ticks(axes: Axes) -> None:
    axes.set_ylim(0, max(105.0, axes.get_ylim()[1]))
    axes.axhline(100, color=style.FAINT, linestyle=":", linewidth=0.8, zorder=0)
    axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))


def _add_legend(figure: Figure, points: Sequence[Point], *, ideal: bool = False) -> None:
    """Explain colours by configuration and lines by status."""
    handles = [
        Line2D([], [], color=c.colour, marker=c.marker, linestyle="", label=c.name)
        for c in CONFIGURATIONS
        if any(p.configuration == c for p in points)
    ]
    for status, text in _EXPLAINED.items():
        if any(p.status == status for p in points):
            look = _choose_marker(BASELINE, status) | {"linestyle": _LINES[status], "label": text}
            handles.append(Line2D([], [], color=style.INK, **look))
    if ideal:
        handles.append(Line2D([], [], color=style.FAINT, linestyle=":", label="perfect division"))
    figure.legend(handles=handles, loc="outside upper left", ncols=4)
