"""Learning curves of flows, with losses of either sign."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from pipeline_core.figures import Drawn, results, style, tabulate
from pipeline_core.project.run import ExperimentRun, Run
from pipeline_gauge_flows.figures import runs
from pipeline_gauge_flows.figures.curves import read_curve
from pipeline_gauge_flows.figures.runs import Group

Records = Sequence[Mapping[str, Any]]
"""Rows of the table, one an epoch."""

_EARLY: Final = 0.02
"""Fraction of the first epochs that may lie outside the axis of the loss, if it falls steeply."""


def draw(experiment: ExperimentRun) -> Drawn:
    """Draw loss, effective sample size, norm of the gradient and learning rate of all variants."""
    trained = [
        (group, _list_rows(run, history))
        for group in runs.group_runs(experiment)
        for run in group.runs
        if (history := results.read_history(run))
    ]
    if not trained:
        return None
    figure, rows = style.make_canvas(2, 2, width=style.PAGE, height=2.0, sharex=True)
    loss, ess, norm, rate = (axes for row in rows for axes in row)
    for group, records in trained:
        _draw_line(loss, group, records, "train_loss", ":")
        _draw_line(loss, group, records, "val_loss")
        _draw_line(ess, group, records, "ess")
        _draw_line(norm, group, records, "grad_norm")
        _draw_line(rate, group, records, "lr")
    _label_axes(loss, ess, norm, rate)
    everything = [record for _, records in trained for record in records]
    _crop_loss(loss, everything)
    _draw_legend(figure, {group.name: group for group, _ in trained})
    return figure, tabulate(everything)


def _list_rows(run: Run, history: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    curve = read_curve(run)
    return [
        {
            "variant": run.variant,
            "seed": run.seed,
            "epoch": record["epoch"],
            "train_loss": record["train"]["loss"],
            "val_loss": (record.get("val") or {}).get("loss"),
            "ess": None if curve is None else float(curve.ess[number]),
            **{name: record.get(name) for name in ("grad_norm", "lr", "seconds")},
        }
        for number, record in enumerate(history)
    ]


def _draw_line(axes: Axes, group: Group, records: Records, name: str, line: str = "-") -> None:
    points = [(one["epoch"], one[name]) for one in records if one[name] is not None]
    marker = "o" if len(points) < 2 else ""
    width = 0.7 if len(group.runs) > 1 else 1.2
    x, y = [epoch for epoch, _ in points], [number for _, number in points]
    axes.plot(x, y, line, marker=marker, color=group.colour, linewidth=width)


def _label_axes(loss: Axes, ess: Axes, norm: Axes, rate: Axes) -> None:
    loss.set_ylabel("loss")
    ess.set_ylabel("effective sample size")
    ess.set_ylim(bottom=0)
    norm.set(ylabel="norm of the gradient", yscale="log", xlabel="epoch")
    rate.set(ylabel="learning rate", yscale="log", xlabel="epoch")
    for axes in (norm, rate):
        style.set_log_ticks(axes.yaxis)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    lines = [Line2D([], [], color=style.INK, linestyle=line) for line in (":", "-")]
    loss.legend(lines, ["training", "validation"], loc="upper right")


def _crop_loss(axes: Axes, records: Records) -> None:
    """Crop the losses of the first few epochs, next to which the rest would look flat."""
    values = np.array([record["train_loss"] for record in records])
    top, low = np.quantile(values, 1 - _EARLY), values.min()
    if np.isfinite(top) and values.max() > top + 2 * (top - low):
        axes.set_ylim(top=float(top + 0.1 * (top - low)))


def _draw_legend(figure: Figure, groups: dict[str, Group]) -> None:
    if len(groups) > 1:
        handles = [
            Line2D([], [], color=group.colour, label=_name_group(group))
            for group in groups.values()
        ]
        figure.legend(handles=handles, loc="outside upper left", ncols=len(handles))


def _name_group(group: Group) -> str:
    n = len(group.runs)
    return f"{group.name}, {n} runs" if n > 1 else group.name
