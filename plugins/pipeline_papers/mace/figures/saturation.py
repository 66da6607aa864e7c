"""Figure 11 of the paper: batch sizes at which the processor saturates and memory is exhausted."""

from typing import Any, Final

from matplotlib.axes import Axes

from pipeline_core.figures import Drawn, Rows, style
from pipeline_core.project.run import ExperimentRun
from pipeline_papers.mace.figures.configurations import read_profiles

_STYLES: Final = ("-o", "-s", "-^", "-D", "-v")
_COLUMNS: Final = ("class_atoms", "samples", "atoms", "edges", "seconds", "memory")
_GIB: Final = 2**30


def draw(experiment: ExperimentRun) -> Drawn:
    """Draw time and memory of a step against the size of the batch, a row for each variant."""
    profiles = {v: w for v, w in read_profiles(experiment).items() if w.get("steps")}
    if not profiles:
        return None
    figure, rows = style.make_canvas(
        len(profiles), 3, width=style.PAGE, height=2.3, sharex="col", sharey="col"
    )
    for row, (variant, content) in zip(rows, profiles.items(), strict=True):
        _draw_row(row, content)
        if len(profiles) > 1:
            kernels = experiment.runs[variant].options.model_dump()["kernels"]
            row[0].set_title(f"{variant}: {kernels} kernels")
    labels = ("samples of the batch", "atoms of the batch", "atoms of the batch")
    for axes, label in zip(rows[-1], labels, strict=True):
        axes.set_xlabel(label)
    for axes in (panel for row in rows for panel in row):
        style.set_log_ticks(axes.xaxis)
        style.set_log_ticks(axes.yaxis)
        axes.tick_params(labelleft=True)
    style.add_legend_above(figure, rows[0][0])
    table: Rows = [["variant", "device", "precision", *_COLUMNS]]
    for variant, content in profiles.items():
        facts = [variant, content["device"], content["precision"]]
        table += [[*facts, *(step[name] for name in _COLUMNS)] for step in content["steps"]]
    return figure, table


def _draw_row(row: list[Axes], content: dict[str, Any]) -> None:
    steps = content["steps"]
    classes = sorted({step["class_atoms"] for step in steps})
    for number, atoms in enumerate(classes):
        mine = sorted((s for s in steps if s["class_atoms"] == atoms), key=lambda s: s["samples"])
        look: dict[str, Any] = {
            "color": style.choose_colour(number),
            "label": f"{atoms} atoms a sample",
        }
        size = [step["atoms"] for step in mine]
        line = _STYLES[number]
        row[0].plot([s["samples"] for s in mine], [s["seconds"] for s in mine], line, **look)
        row[1].plot(size, [1000 * s["seconds"] / s["atoms"] for s in mine], line, **look)
        measured = [step for step in mine if step["memory"] is not None]
        memory = [step["memory"] / _GIB for step in measured]
        row[2].plot([step["atoms"] for step in measured], memory, line, **look)
    _draw_guide(row[0], steps)
    _draw_marks(row, content)
    for axes, label in zip(row, ("step (s)", "step (ms per atom)", "memory (GiB)"), strict=True):
        axes.set(ylabel=label, xscale="log", yscale="log")


def _draw_guide(axes: Axes, steps: list[dict[str, Any]]) -> None:
    """Draw a line of slope one: twice the samples in twice the time."""
    last = max(steps, key=lambda step: step["seconds"])
    most = last["samples"]
    fewest = min(step["samples"] for step in steps)
    ends = [last["seconds"] * n / most for n in (fewest, most)]
    axes.plot([fewest, most], ends, ":", color=style.FAINT, linewidth=1, label="slope one")


def _draw_marks(row: list[Axes], content: dict[str, Any]) -> None:
    sizes = [step["atoms"] for step in content["steps"]]
    middle = (min(sizes) * max(sizes)) ** 0.5
    saturated, best = (content["saturation"][key] for key in ("atoms", "seconds_per_atom"))
    row[1].axvline(saturated, color=style.INK, linestyle="--", linewidth=0.8)
    row[1].axhline(1000 * best, color=style.FAINT, linestyle=":", linewidth=0.8)
    _name(row[1], saturated, f"saturated: {saturated:,.0f}", left=saturated > middle, top=True)
    capacity = content["capacity"]
    text = f"capacity: {capacity['atoms']:,.0f}\n({_name_limit(capacity)})"
    row[2].axvline(capacity["atoms"], color=style.INK, linestyle="-.", linewidth=0.8)
    _name(row[2], capacity["atoms"], text, left=True, top=False)


def _name_limit(capacity: dict[str, Any]) -> str:
    if capacity["limited_by"] == "memory" and capacity["memory_limit"] is not None:
        return f"limit {capacity['memory_limit'] / _GIB:.1f} GiB"
    return str(capacity["limited_by"])


def _name(axes: Axes, place: float, text: str, *, left: bool, top: bool) -> None:
    """Write text beside a vertical line, away from curves."""
    look = {"ha": "right" if left else "left", "va": "top" if top else "bottom"}
    at, offset = (place, 0.97 if top else 0.03), (-3 if left else 3, 0)
    style.annotate(axes, text, at, offset, xycoords=("data", "axes fraction"), **look)
