"""Figure 9 of the paper: the load of the ranks in each step, shuffled and balanced."""

from typing import Any, Final

import numpy as np
from matplotlib.ticker import MaxNLocator

from pipeline_core.figures import Drawn, Rows, results, style
from pipeline_core.project.run import ExperimentRun

_WAYS: Final = {
    "random": ("as shuffled", style.FAINT),
    "pairing": ("smallest + largest (the paper)", style.COLOURS[5]),
    "balanced": ("balanced (here)", style.COLOURS[1]),
}
_RANKS: Final = 4
"""Number of ranks in the paper."""


def draw(experiment: ExperimentRun) -> Drawn:
    """Draw a band from the smallest to the largest load for each way to distribute samples."""
    entry = _find_forecast(experiment)
    if entry is None:
        return None
    figure, ((axes,),) = style.make_canvas(width=style.PAGE, height=2.6)
    table: Rows = [["sharing", "step", "rank", "load"]]
    for way, (name, colour) in _WAYS.items():
        loads = np.asarray(entry[way]["loads"])  # (n_steps, n_ranks)
        steps = np.arange(1, len(loads) + 1)
        label = f"{name}: {entry[way]['variation_in_steps']:.3f}"
        # Each step has a width, so that an epoch of a single step is visible, too.
        least, largest, edges = loads.min(1), loads.max(1), np.append(steps, len(steps) + 1) - 0.5
        lower, upper = (np.append(bound, bound[-1]) for bound in (least, largest))
        axes.fill_between(edges, lower, upper, step="post", color=colour, alpha=0.5, label=label)
        for bound in (lower, upper):
            axes.step(edges, bound, where="post", color=colour, linewidth=0.8)
        table += [
            [way, int(step), rank, float(load)]
            for step, row in zip(steps, loads, strict=True)
            for rank, load in enumerate(row)
        ]
    axes.set(xlabel="step", ylabel="atoms + bonds + angles", title=f"{entry['ranks']} ranks")
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
    style.add_legend_above(figure, axes)
    return figure, table


def _find_forecast(experiment: ExperimentRun) -> dict[str, Any] | None:
    """Return the first forecast with loads of steps for the paper's number of ranks."""
    for run in experiment.runs.values():
        for entry in results.read_balance(run):
            has_loads = all("loads" in entry.get(way, {}) for way in _WAYS)
            if entry["ranks"] == _RANKS and has_loads:
                return entry
    return None
