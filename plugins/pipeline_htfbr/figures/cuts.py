"""Cuts through a surface: the fit beside the exact one."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pipeline_core.artifacts.extracts import shorten
from pipeline_core.figures import Drawn, style
from pipeline_core.project.run import ExperimentRun
from pipeline_htfbr.figures import uses
from pipeline_htfbr.figures.uses import Cut

_LEVELS: Final = 9
_EXACT_DOTS: Final = 25


def draw(experiment: ExperimentRun) -> Drawn:
    """Draw the cuts of the first variant that has any."""
    extract = experiment.extract("cuts", lambda: _read_first(experiment))
    if extract is None:
        return None
    variant, cuts = extract["variant"], [Cut(**one) for one in extract["cuts"]]
    figure, panels = style.make_grid(len(cuts), height=2.1)
    for panel, cut in zip(panels, cuts, strict=True):
        _draw_line(panel, cut) if len(cut.axes) == 1 else _draw_contours(panel, cut)
    _add_legend(figure, variant, cuts)
    header: list[object] = ["variant", "coordinates", "value_0", "value_1", "fitted_cm-1"]
    rows = [[variant, *row] for cut in cuts for row in _list_rows(cut)]
    return figure, [[*header, "exact_cm-1"], *rows]


def _read_first(experiment: ExperimentRun) -> dict[str, Any] | None:
    """Return the first variant that has cuts, and its cuts with energies to seven digits."""
    for run in experiment.runs.values():
        cuts = uses.read_cuts(run)
        if cuts:
            return {"variant": run.variant, "cuts": [_shorten(cut) for cut in cuts]}
    return None


def _shorten(cut: Cut) -> dict[str, Any]:
    heights = {
        "fitted": shorten(cut.fitted, 7),
        "exact": None if cut.exact is None else shorten(cut.exact, 7),
    }
    return {"labels": cut.labels, "axes": cut.axes, **heights}


def _draw_line(axes: Axes, cut: Cut) -> None:
    (x,) = cut.axes
    axes.plot(x, cut.fitted / 1000, color=style.COLOURS[0])
    if cut.exact is not None:
        every = max(1, len(x) // _EXACT_DOTS)
        axes.plot(x[::every], cut.exact[::every] / 1000, "o", color=style.COLOURS[1], markersize=2)
    axes.set(xlabel=cut.labels[0], ylabel="energy (10³ cm⁻¹)")


def _draw_contours(axes: Axes, cut: Cut) -> None:
    # Levels at quantiles of the points show the valleys as well as the walls.
    levels = np.unique(np.quantile(cut.fitted, np.linspace(0.05, 0.95, _LEVELS)) / 1000)
    lines = axes.contour(*cut.axes, cut.fitted.T / 1000, levels, colors=style.COLOURS[0])
    axes.clabel(lines, levels[::3], fontsize=5.5, fmt="%.3g")
    if cut.exact is not None:
        axes.contour(
            *cut.axes, cut.exact.T / 1000, levels, colors=style.COLOURS[1], linestyles="dotted"
        )
    axes.set(xlabel=cut.labels[0], ylabel=cut.labels[1])


def _add_legend(figure: Figure, variant: str, cuts: Sequence[Cut]) -> None:
    fit, exact = style.COLOURS[:2]
    handles = [Line2D([], [], color=fit, label=f"fitted: {variant}")]
    if any(cut.exact is not None for cut in cuts):
        handles.append(
            Line2D([], [], color=exact, linestyle="dotted", marker="o", markersize=2, label="exact")
        )
    if any(len(cut.axes) == 2 for cut in cuts):
        handles.append(Line2D([], [], linestyle="", label="contours: 10³ cm⁻¹"))
    figure.legend(handles=handles, loc="outside upper left", ncols=len(handles))


def _list_rows(cut: Cut) -> Iterator[list[object]]:
    names = " ".join(cut.labels)
    for place in np.ndindex(cut.fitted.shape):
        values = [float(axis[i]) for axis, i in zip(cut.axes, place, strict=True)]
        second = values[1] if len(values) > 1 else None
        exact = None if cut.exact is None else float(cut.exact[place])
        yield [names, values[0], second, float(cut.fitted[place]), exact]
