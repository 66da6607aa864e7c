"""Figure 7: weak scaling, measured on few ranks and projected on many."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from pipeline_core.figures import Drawn, Rows, style
from pipeline_core.figures.expected import read_paper
from pipeline_core.project.run import ExperimentRun
from pipeline_papers.egnn_esp.figures.results import draw_measured, make_handles, read_study

Record = dict[str, Any]

_MODES: Final = {"line": "projected, one direction", "cube": "projected, all directions"}
_PAPERS_RANKS: Final = 512
_PARTS: Final = {
    "latency": (style.COLOURS[4], "////"),
    "transfer": (style.COLOURS[5], "...."),
    "idle": ("#D0D0D0", ""),
}
"""Colour and hatch of the activities of a part other than computing, from below."""


def draw(experiment: ExperimentRun) -> Drawn:
    """Draw efficiencies in one and in all directions, and the losses in the latter."""
    content = read_study(experiment, "scaling")
    if content is None:
        return None
    series = {m: [one for one in content["projected"] if one["mode"] == m] for m in _MODES}
    series = {mode: records for mode, records in series.items() if records}
    measured = [one for one in content["measured"] if one["mode"] == "weak"]
    if not series and len(measured) < 2:
        return None
    n = 1 + len(series) + ("cube" in series)
    figure, (row,) = style.make_canvas(1, n, width=style.PAGE, height=2.6)
    _draw_measured(row[0], measured, content)
    entry = read_paper(experiment).get(f"weak_efficiency_{_PAPERS_RANKS}")
    papers = None if entry is None else entry.value
    for axes, (mode, records) in zip(row[1:], series.items(), strict=False):
        _draw_projected(axes, records, papers if mode == "cube" else None)
        axes.set_title(_MODES[mode])
    if "cube" in series:
        _draw_lost(row[-1], series["cube"])
    _draw_legend(figure, list(series), with_paper=papers is not None and "cube" in series)
    return figure, _make_table(measured, series)


def compute_efficiencies(records: Sequence[Record]) -> list[float]:
    """Return the time of the first record over the time of each, %."""
    return [100 * records[0]["seconds"] / one["seconds"] for one in records]


def _draw_measured(axes: Axes, records: Sequence[Record], content: Record) -> None:
    ranks = [one["ranks"] for one in records]
    modelled = [100 * records[0]["modelled"] / one["modelled"] for one in records]
    measured = compute_efficiencies(records)
    draw_measured(axes, content, records, measured, modelled, clip_on=False)
    axes.set(title="measured", ylabel="efficiency (%)")
    _label_percent(axes, [*modelled, *measured])
    style.set_rank_axis(axes, ranks, "ranks")


def _draw_projected(axes: Axes, records: Sequence[Record], papers: float | None) -> None:
    ranks, values = [one["ranks"] for one in records], compute_efficiencies(records)
    look: Record = {"color": style.COLOURS[0], "markerfacecolor": "white"}
    axes.plot(ranks, values, "--o", clip_on=False, **look)
    for number, (one, n, value) in enumerate(zip(records, ranks, values, strict=True)):
        if number % 2 == (len(records) - 1) % 2:
            side = {0: "left", len(records) - 1: "right"}.get(number, "center")
            style.annotate(axes, f"{one['atoms'] / 1000:.3g}k", (n, value), (0, -9), ha=side)
    if papers is not None:
        axes.plot(_PAPERS_RANKS, papers, "x", color=style.COLOURS[1], markersize=5)
        ranks, values = [*ranks, _PAPERS_RANKS], [*values, papers]
    _label_percent(axes, values, lowest=min(80.0, min(values) - 5))
    style.set_rank_axis(axes, ranks, "ranks")


def _label_percent(axes: Axes, values: Sequence[float], lowest: float = 0.0) -> None:
    axes.set_ylim(lowest, max(100.0, *values) + 0.05 * (100 - lowest))
    axes.axhline(100, color=style.FAINT, linestyle=":", linewidth=0.8, zorder=0)


def _draw_lost(axes: Axes, records: Sequence[Record]) -> None:
    """Draw the share of a pass that the mean part does not spend computing."""
    places, bottom = np.arange(len(records)), np.zeros(len(records))
    for part, (colour, hatch) in _PARTS.items():
        share = np.array([100 * one[part] / one["seconds"] for one in records])
        axes.bar(places, share, 0.7, bottom, color=colour, hatch=hatch, edgecolor="white")
        bottom += share
    for place, lost in enumerate(bottom.tolist()):
        style.annotate(axes, f"{lost:.2g}", (place, lost), (0, 1))
    axes.set_xticks(places, [str(one["ranks"]) for one in records])
    axes.tick_params(axis="x", length=0)
    axes.set(title="projected, losses", ylabel="share of a pass (%)", xlabel="ranks")
    axes.margins(y=0.1)


def _draw_legend(figure: Figure, modes: Sequence[str], *, with_paper: bool) -> None:
    blue = style.COLOURS[0]
    hollow: Record = {"color": blue, "marker": "o", "markerfacecolor": "white"}
    handles = make_handles()
    if modes:
        handles.append(Line2D([], [], linestyle="--", label="projected", **hollow))
    if with_paper:
        cross: Record = {"color": style.COLOURS[1], "marker": "x", "linestyle": ""}
        handles.append(Line2D([], [], label="the paper", **cross))
    if "cube" in modes:
        handles += [
            Patch(facecolor=colour, hatch=hatch, edgecolor="white", label=part)
            for part, (colour, hatch) in _PARTS.items()
        ]
    figure.legend(handles=handles, loc="outside upper left", ncols=4)


def _make_table(measured: Sequence[Record], series: dict[str, list[Record]]) -> Rows:
    rows: Rows = [["status", "copies", "ranks", "atoms", "edges", "seconds", "efficiency"]]
    every = [("measured", "line", measured)]
    every += [("projected", mode, records) for mode, records in series.items()]
    for status, mode, records in every:
        for one, efficiency in zip(records, compute_efficiencies(records), strict=True):
            sizes = [one["ranks"], one["atoms"], one["edges"]]
            rows.append([status, mode, *sizes, one["seconds"], efficiency / 100])
    return rows
