"""Figures 3 and 4 of the paper: the time of a training, and its loss curve."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import wrap
from typing import Any, Final, NamedTuple

from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from pipeline_core.figures import Drawn, Rows, results, style
from pipeline_core.figures.expected import read_paper
from pipeline_core.figures.formats import format_number
from pipeline_core.project.run import ExperimentRun
from pipeline_htfbr.figures.fits import Fit
from pipeline_papers.htfbr.figures.tables import DEVICES, FRAMEWORKS, SECONDS, read_comparable

LEARNED: Final = ("resident", "dataloader")
"""Methods of gradient descent, ours and the paper's baseline."""
Losses = dict[str, list[tuple[int, float, float | None]]]
"""Variant -> epoch, training loss, validation loss."""

_EPOCHS: Final = 100_000
"""Epochs of the paper's trainings."""


class Bar(NamedTuple):
    """A training time: device, implementation, hours, and status (measured, projected, ...)."""

    device: str
    kind: str
    hours: float
    status: str


def draw_time(experiment: ExperimentRun) -> Drawn:
    """Draw Figure 3: time for 100,000 epochs on HONO."""
    ours = _choose_timed(read_comparable(experiment, "hono"))
    bars = [
        Bar(DEVICES[device], framework, entry.value * SECONDS[entry.unit] / 3600, "paper")
        for device in DEVICES
        for framework in FRAMEWORKS
        if (entry := read_paper(experiment).get(f"hono_{device}_{framework}_time"))
    ]
    if not ours or not bars:
        return None
    for fit in ours:
        hours = _EPOCHS * fit.surface["seconds_per_epoch"] / 3600
        bars.append(Bar(fit.hardware or "here", fit.method, hours, "projected"))
    bars += _list_shared(experiment)
    figure, ((axes,),) = style.make_canvas(width=style.PAGE, height=2.6)
    _draw_bars(axes, bars)
    handles = [
        Patch(
            facecolor=_choose_colour(kind),
            hatch=_choose_hatch(status),
            edgecolor="white",
            label=label,
        )
        for (kind, status), label in {
            (bar.kind, bar.status): f"{bar.kind} ({bar.status})" for bar in bars
        }.items()
    ]
    figure.legend(handles=handles, loc="outside upper left", ncols=len(handles))
    header: list[object] = ["device", "implementation", "hours", "status"]
    return figure, [header, *map(list, bars)]


def _list_shared(experiment: ExperimentRun) -> list[Bar]:
    """Return the projected times of data parallel training on several devices like this one."""
    profiles = [results.read_profile(run) or {} for run in experiment.runs.values()]
    entries = [entry for content in profiles for entry in content.get("projection", ())]
    return [
        Bar(f"{e['ranks']} like ours", e["strategy"], _EPOCHS * e["seconds"] / 3600, "projected")
        for e in sorted(entries, key=lambda e: e["ranks"])
        if e["ranks"] > 1
    ]


def _draw_bars(axes: Axes, bars: list[Bar]) -> None:
    devices = list(dict.fromkeys(bar.device for bar in bars))
    for bar in bars:
        members = [other.kind for other in bars if other.device == bar.device]
        shift = 0.4 * (members.index(bar.kind) - (len(members) - 1) / 2)
        place = devices.index(bar.device) + shift
        hatch = _choose_hatch(bar.status)
        axes.bar(
            place, bar.hours, 0.37, color=_choose_colour(bar.kind), hatch=hatch, edgecolor="white"
        )
        text = _format_time(3600 * bar.hours)
        style.annotate(axes, text, (place, bar.hours), (0, 2), fontsize=6.5)
    axes.set_yscale("log")
    hours = [bar.hours for bar in bars]
    axes.set_ylim(0.5 * min(hours), 2 * max(hours))
    style.set_log_ticks(axes.yaxis)
    axes.set_xticks(range(len(devices)), ["\n".join(wrap(device, 14)) for device in devices])
    axes.tick_params(axis="x", length=0)
    axes.set_ylabel("time for 100,000 epochs (h)")


def _format_time(seconds: float) -> str:
    """Format a time: 8.1 s, 12 min, 5 h 57 min."""
    if seconds < 120:
        return f"{format_number(seconds, 2)} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if rest else f"{hours} h"


def _choose_colour(kind: str) -> str:
    """Return one colour for our and the paper's own methods, another for the baselines."""
    return style.choose_colour(int(kind in ("benchmark", "dataloader")))


def _choose_hatch(status: str) -> str:
    return "////" if status == "projected" else ""


def _choose_timed(fits: list[Fit]) -> list[Fit]:
    """Return the first fit by each method."""
    timed = [f for f in reversed(fits) if f.surface["seconds_per_epoch"]]
    by_method = {fit.method: fit for fit in timed}
    return [by_method[method] for method in LEARNED if method in by_method]


def draw_curves(experiment: ExperimentRun) -> Drawn:
    """Draw Figure 4: training losses of our method and the baseline on ethene."""
    fits = read_comparable(experiment, "ethene_xtb")
    rival = next((fit for fit in fits if fit.method == "dataloader"), None)
    if rival is None:
        return None
    alike = [f for f in fits if f.method in LEARNED and _read_settings(f) == _read_settings(rival)]
    return _draw_losses(_read_losses([fit.run for fit in alike])) if len(alike) > 1 else None


def _read_settings(fit: Fit) -> dict[str, Any]:
    """Return the training options of a fit, without the method."""
    return {**fit.run.select_params("train")["train"], "method": None}


def _read_losses(runs: list[Any]) -> Losses:
    losses: Losses = {}
    for run in runs:
        records = [record for record in results.read_history(run) if record.get("train")]
        points = [
            (record["epoch"], record["train"]["loss"], (record.get("val") or {}).get("loss"))
            for record in records
        ]
        if points:
            losses[run.variant] = points
    return losses


def _draw_losses(losses: Losses) -> Drawn:
    if not losses:
        return None
    figure, (panels,) = style.make_canvas(1, 2, width=style.PAGE, sharex=True, sharey=True)
    columns: list[tuple[str, Callable[[Any], Any]]] = [
        ("training loss", lambda point: point[1]),
        ("validation loss", lambda point: point[2]),
    ]
    for axes, (name, value) in zip(panels, columns, strict=True):
        for number, (variant, points) in enumerate(losses.items()):
            shown = [(p[0], value(p)) for p in points if value(p)]
            marker = "o" if len(shown) < 2 else ""
            x, y = [one for one, _ in shown], [one for _, one in shown]
            # Coinciding curves are visible through the dashes of the later one.
            line = "-" if number == 0 else "--"
            axes.plot(x, y, line, marker=marker, color=style.choose_colour(number), label=variant)
        axes.set(xlabel="epoch", ylabel=name, yscale="log")
        axes.tick_params(labelleft=True)
        style.set_log_ticks(axes.yaxis)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    style.add_legend_above(figure, panels[0])
    table: Rows = [["variant", "epoch", "train_loss", "val_loss"]]
    table += [[variant, *point] for variant, points in losses.items() for point in points]
    return figure, table
