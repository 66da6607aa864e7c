"""Figure 6: strong scaling by partition method, measured on few ranks and projected on many."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from pipeline_core.figures import Drawn, Rows, style
from pipeline_core.project.run import ExperimentRun
from pipeline_papers.egnn_esp.figures.results import (
    choose_style,
    draw_measured,
    make_handles,
    order_methods,
    read_study,
)

Record = dict[str, Any]

_KIB: Final = 1024
_COLUMNS: Final = ("seconds", "fastest", "compute", "latency", "transfer", "idle")


def draw(experiment: ExperimentRun) -> Drawn:
    """Draw times of a pass above, and the link and its messages, which determine them, below."""
    content = read_study(experiment, "scaling")
    if content is None:
        return None
    projected = [one for one in content["projected"] if one["mode"] == "strong"]
    cutoffs = list(dict.fromkeys(one["cutoff"] for one in projected))
    figure, rows = style.make_canvas(2, 1 + len(cutoffs), width=style.PAGE, height=2.3)
    measured = [one for one in content["measured"] if one["mode"] == "strong"]
    _draw_measured(rows[0][0], measured, content)
    _draw_link(rows[1][0], content["link"])
    for number, cutoff in enumerate(cutoffs, start=1):
        mine = [one for one in projected if one["cutoff"] == cutoff]
        _draw_projected(rows[0][number], mine)
        rows[0][number].set_title(f"projected, {cutoff:g} Å")
        _draw_messages(rows[1][number], mine)
    _draw_legend(figure, projected)
    return figure, _make_table(measured, projected)


def _draw_measured(axes: Axes, records: Sequence[Record], content: Record) -> None:
    """Draw measured times, and predictions of the model for them."""
    ranks = [one["ranks"] for one in records]
    seconds, modelled = ([one[key] for one in records] for key in ("seconds", "modelled"))
    draw_measured(axes, content, records, seconds, modelled)
    axes.set(title="measured", ylabel="pass (s)", yscale="log")
    style.set_rank_axis(axes, ranks, "ranks")
    low, high = axes.get_ylim()
    axes.set_ylim(low / 1.3, 1.3 * high)
    style.set_log_ticks(axes.yaxis)


def _draw_projected(axes: Axes, records: Sequence[Record]) -> None:
    for method in order_methods(one["method"] for one in records):
        mine = _select_method(records, method)
        ranks = [one["ranks"] for one in mine]
        seconds = [one["seconds"] for one in mine]
        axes.plot(ranks, seconds, "--", markerfacecolor="white", **choose_style(method))
    first = min(records, key=lambda one: (one["ranks"], one["seconds"]))
    ends = np.array([first["ranks"], max(one["ranks"] for one in records)])
    ideal = first["seconds"] * first["ranks"] / ends
    axes.plot(ends, ideal, ":", color=style.FAINT, linewidth=0.8, zorder=0)
    axes.set(ylabel="pass (s)", yscale="log")
    style.set_log_ticks(axes.yaxis)
    style.set_rank_axis(axes, [one["ranks"] for one in records], "ranks")


def _draw_messages(axes: Axes, records: Sequence[Record]) -> None:
    for method in order_methods(one["method"] for one in records):
        mine = _select_method(records, method)
        seconds = [1e3 * (one["latency"] + one["transfer"]) for one in mine]
        ranks = [one["ranks"] for one in mine]
        axes.plot(ranks, seconds, "--", markerfacecolor="white", **choose_style(method))
    axes.set(ylabel="messages (ms)")
    axes.set_ylim(bottom=0)
    style.set_rank_axis(axes, [one["ranks"] for one in records], "ranks")


def _draw_link(axes: Axes, link: Record) -> None:
    """Draw the measured exchanges, and the line fitted to them."""
    latency, bandwidth = link["latency"], link["bandwidth"]
    least, *_, most = link["bytes"]
    n_bytes = np.geomspace(least, most, 50)
    axes.plot(n_bytes, 1e3 * (latency + n_bytes / bandwidth), ":", color=style.INK, linewidth=1)
    milliseconds = [1e3 * seconds for seconds in link["seconds"]]
    axes.plot(link["bytes"], milliseconds, "o", color=style.COLOURS[0], markersize=4.5)
    axes.set(xscale="log", yscale="log", xlabel="exchanged", ylabel="exchange (ms)")
    axes.xaxis.set_major_locator(FixedLocator([_KIB, 32 * _KIB, _KIB**2, 32 * _KIB**2]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(_format_bytes))
    axes.set_xlim(least / 1.5, 1.5 * most)
    style.set_log_ticks(axes.yaxis)
    text = f"{1e6 * latency:.3g} µs, {bandwidth / 1e9:.2g} GB/s"
    axes.set_title(f"link, measured: {text}")


def _format_bytes(n: float, _: int) -> str:
    return f"{n / _KIB:g} KiB" if n < _KIB**2 else f"{n / _KIB**2:g} MiB"


def _select_method(records: Sequence[Record], method: str) -> list[Record]:
    mine = [one for one in records if one["method"] == method]
    return sorted(mine, key=lambda one: one["ranks"])


def _draw_legend(figure: Figure, projected: Sequence[Record]) -> None:
    handles = make_handles()
    handles += [
        Line2D([], [], linestyle="--", markerfacecolor="white", **choose_style(method))
        for method in order_methods(one["method"] for one in projected)
    ]
    if projected:
        handles.append(Line2D([], [], color=style.FAINT, linestyle=":", label="ideal"))
    figure.legend(handles=handles, loc="outside upper left", ncols=4)


def _make_table(measured: Sequence[Record], projected: Sequence[Record]) -> Rows:
    header: list[object] = ["status", "method", "cutoff", "ranks", "atoms", "edges", *_COLUMNS]
    rows: Rows = [header]
    for status, records in (("measured", measured), ("projected", projected)):
        for one in records:
            facts = [one.get("method", "low_nn"), one.get("cutoff"), one["ranks"]]
            sizes = [one["atoms"], one["edges"]]
            rows.append([status, *facts, *sizes, *(one.get(name) for name in _COLUMNS)])
    return rows
