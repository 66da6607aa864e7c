"""Figures 3 and 4 of the paper: the time of a training, and its loss curve."""

from textwrap import wrap
from typing import Any, Final, NamedTuple

from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from pipeline_core.figures import Drawn, results, style, tabulate
from pipeline_core.figures.expected import read_paper
from pipeline_core.figures.formats import format_number
from pipeline_core.project.run import ExperimentRun
from pipeline_htfbr.figures.fits import Fit
from pipeline_papers.htfbr.figures.tables import DEVICES, FRAMEWORKS, SECONDS, read_comparable

LEARNED: Final = ("resident", "dataloader")
"""Methods of gradient descent, ours and the paper's baseline."""
_LOSSES: Final = {"train_loss": "training loss", "val_loss": "validation loss"}

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
        Patch(label=f"{kind} ({status})", **_choose_look(kind, status))
        for kind, status in dict.fromkeys((bar.kind, bar.status) for bar in bars)
    ]
    figure.legend(handles=handles, loc="outside upper left", ncols=len(handles))
    return figure, [["device", "implementation", "hours", "status"], *map(list, bars)]


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
        axes.bar(place, bar.hours, 0.37, **_choose_look(bar.kind, bar.status))
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


def _choose_look(kind: str, status: str) -> dict[str, Any]:
    """Return one colour for our and the paper's own methods, another for the baselines."""
    colour = style.choose_colour(int(kind in ("benchmark", "dataloader")))
    hatch = "////" if status == "projected" else ""
    return {"facecolor": colour, "hatch": hatch, "edgecolor": "white"}


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
    rows = [
        {
            "variant": fit.run.variant,
            "epoch": record["epoch"],
            "train_loss": record["train"]["loss"],
            "val_loss": (record.get("val") or {}).get("loss"),
        }
        for fit in alike
        for record in results.read_history(fit.run)
        if record.get("train")
    ]
    if len(alike) < 2 or not rows:
        return None
    figure, (panels,) = style.make_canvas(1, 2, width=style.PAGE, sharex=True, sharey=True)
    for axes, (key, name) in zip(panels, _LOSSES.items(), strict=True):
        for number, variant in enumerate(dict.fromkeys(row["variant"] for row in rows)):
            mine = [row for row in rows if row["variant"] == variant and row[key]]
            marker = "o" if len(mine) < 2 else ""
            x, y = [row["epoch"] for row in mine], [row[key] for row in mine]
            # Coinciding curves are visible through the dashes of the later one.
            line = "-" if number == 0 else "--"
            axes.plot(x, y, line, marker=marker, color=style.choose_colour(number), label=variant)
        axes.set(xlabel="epoch", ylabel=name, yscale="log")
        axes.tick_params(labelleft=True)
        style.set_log_ticks(axes.yaxis)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    style.add_legend_above(figure, panels[0])
    return figure, tabulate(rows)


def _read_settings(fit: Fit) -> dict[str, Any]:
    """Return the training options of a fit, without the method."""
    return {**fit.run.select_params("train")["train"], "method": None}
