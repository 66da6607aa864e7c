"""Figures of amorphous structures: energy during cooling, and radial distribution functions."""

from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from pipeline_atoms.figures.dynamics import draw_band
from pipeline_atoms.figures.properties import make_rows, name_panel, read_properties
from pipeline_core.figures import Drawn, style
from pipeline_core.project.run import ExperimentRun

_WINDOW: Final = 50
"""Largest number of parts of a cooling for which means are drawn."""


def draw_glasses(experiment: ExperimentRun) -> Drawn:
    """Draw energy against temperature, and radial distribution functions; a row per structure."""
    found = read_properties(experiment, "melt_quench")
    if not found:
        return None
    figure, axes = style.make_canvas(len(found), 2, width=style.PAGE, height=2.3)
    for (left, right), one in zip(axes, found, strict=True):
        _draw_cooling(left, one.arrays)
        _draw_pairs(right, one.arrays)
        left.set_title(name_panel(one, found))
    return figure, make_rows(found)


def _draw_cooling(axes: Axes, arrays: dict[str, NDArray[Any]]) -> None:
    """Draw means over short parts of the run: melt, cooling and annealing."""
    bath, energy = arrays["bath"], 1000 * (arrays["energy"] - arrays["energy"].min())
    cooling = np.flatnonzero((bath < bath.max()) & (bath > bath.min()))
    parts = np.array_split(cooling, min(_WINDOW, max(1, len(cooling))))
    means = [(bath[p].mean(), energy[p].mean()) for p in parts if len(p)]
    axes.plot(bath, energy, ".", markersize=1.5, color=style.FAINT, label="frames")
    if means:
        axes.plot(*zip(*means, strict=True), "o-", markersize=2, label="means of the cooling")
    axes.set(xlabel="temperature of the bath (K)", ylabel="potential energy (meV/atom)")
    axes.legend(loc="upper left")


def _draw_pairs(axes: Axes, arrays: dict[str, NDArray[Any]]) -> None:
    names = [n.removeprefix("rdf_") for n in arrays if n.startswith("rdf_")]
    pairs = [name for name in names if not name.startswith("error_")]
    axes.axhline(1, color=style.FAINT, linewidth=0.6, linestyle=":", zorder=0)
    for number, pair in enumerate(pairs):
        colour, g = style.choose_colour(number), arrays[f"rdf_{pair}"]
        axes.plot(arrays["r"], g, color=colour, label=pair.replace("-", "–"))
        if f"error_{pair}" in names:
            draw_band(axes, arrays["r"], g, arrays[f"rdf_error_{pair}"], colour)
    axes.set(xlabel="distance r (Å)", ylabel="g(r)", xlim=(0, float(arrays["r"].max())))
    axes.set_ylim(0, None)
    axes.legend(loc="upper right")
