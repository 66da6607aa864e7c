"""Figure 8 of the paper: time and memory of a training step, one optimisation after the other."""

from typing import Any, Final

from matplotlib.axes import Axes

from pipeline_chgnet.options import CHGNetOptions
from pipeline_core.figures import Drawn, Rows, results, style
from pipeline_core.project.run import ExperimentRun

Step = dict[str, Any]
Steps = dict[tuple[int, int], Step]
"""Atoms of a sample and number of copies -> measured step."""

BARS: Final = {
    ("reference", "serial", False): "basis of each structure, plain operations",
    ("reference", "batched", False): "+ basis of the batch at once",
    ("fused", "batched", False): "+ fused kernels",
    ("fused", "batched", True): "+ heads",
}
"""Kernels, basis, and whether there are heads -> name."""
_COLOURS: Final = (style.FAINT, style.COLOURS[4], style.COLOURS[2], style.COLOURS[0])
_GIB: Final = 2**30
_FACTS: Final = ("class_atoms", "samples", "seconds", "memory")


def draw(experiment: ExperimentRun) -> Drawn:
    """Draw bars of the steps that all configurations have in common."""
    measured = read_steps(experiment)
    if len(measured) < 2:
        return None
    common = sorted(set.intersection(*(set(steps) for steps in measured.values())))
    if not common:
        return None
    figure, (row,) = style.make_canvas(1, 2, width=style.PAGE, height=2.6)
    for axes, fact, unit in ((row[0], "seconds", 1.0), (row[1], "memory", _GIB)):
        _draw_bars(axes, measured, common, fact, unit)
    row[0].set_ylabel("training step (s)")
    row[1].set_ylabel("memory of a step (GiB)")
    style.add_legend_above(figure, row[0])
    table: Rows = [["configuration", *_FACTS]]
    for name, steps in measured.items():
        table += [[name, *(steps[key][fact] for fact in _FACTS)] for key in common]
    return figure, table


def read_steps(experiment: ExperimentRun) -> dict[str, Steps]:
    """Return the measured steps of each configuration, in the order of the figure."""
    by_name: dict[str, Steps] = {}
    for run in experiment.runs.values():
        options, profile = run.options, results.read_profile(run)
        if not isinstance(options, CHGNetOptions) or profile is None:
            continue
        name = BARS.get((options.kernels, options.basis, options.heads != "none"))
        if name is not None:
            steps = {(s["class_atoms"], s["samples"]): s for s in profile["steps"]}
            by_name.setdefault(name, steps)
    return {name: by_name[name] for name in BARS.values() if name in by_name}


def _draw_bars(
    axes: Axes,
    measured: dict[str, Steps],
    common: list[tuple[int, int]],
    fact: str,
    unit: float,
) -> None:
    """Draw a group of bars for each batch; steps without the measured number have no bar."""
    width, first = 0.8 / len(measured), next(iter(measured.values()))
    for number, (name, steps) in enumerate(measured.items()):
        shift = width * (number - (len(measured) - 1) / 2)
        values = [steps[key][fact] for key in common]
        heights = [(value or 0) / unit for value in values]
        places = [place + shift for place in range(len(common))]
        colour = _COLOURS[list(BARS.values()).index(name)]
        bars = axes.bar(places, heights, 0.9 * width, color=colour, label=name)
        gains = [
            f"{first[key][fact] / value:.1f}" if value and first[key][fact] else ""
            for key, value in zip(common, values, strict=True)
        ]
        axes.bar_label(bars, gains, padding=1, fontsize=6)
    names = [f"{samples} samples of {atoms} atoms" for atoms, samples in common]
    axes.set_xticks(range(len(common)), names)
    axes.tick_params(axis="x", length=0)
    axes.margins(y=0.1)
