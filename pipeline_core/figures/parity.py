"""Parity plots on the held-out split: points for few numbers, a density for many.

They are drawn from an extract: the points, or the number of values in each cell of the density.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from pipeline_core.artifacts.extracts import shorten
from pipeline_core.figures import Drawn, Rows, predictions, results, style, tabulate
from pipeline_core.figures.formats import format_number
from pipeline_core.figures.predictions import Comparison
from pipeline_core.figures.quantities import Quantity, add_unit, find_quantity
from pipeline_core.figures.results import Errors
from pipeline_core.project.run import ExperimentRun, Run

Floats = NDArray[np.float64]
Range = tuple[float, float]

MOST_POINTS: Final = 1000
"""More numbers than this are drawn as a density."""
_CELLS: Final = 60
_ROWS: Final = int(_CELLS / 3**0.5)  # so that hexagons are regular
_BARS: Final = 12
"""Error bars over a density, each of equally many numbers."""
_OFFSET: Final = 10.0
"""Labels whose mean exceeds their range by this factor are shown relative to it."""


Compared = dict[str, list[Comparison]]
"""Variant, or variant and head of a model with several -> comparisons."""


@dataclass(frozen=True)
class Panel:
    """A panel of one quantity: its points or its density, and its axes.

    Attributes:
        quantity: The quantity and its units.
        split: Name of the split.
        errors: From the metrics, in the engine's unit.
        limits: Limits of both axes.
        shift: Subtracted from labels and predictions.
        points: Labels and predictions, (2, n) in `quantity.unit`; None for a density.
        cells: Cells of a density: places in `limits` in half steps, and counts, (3, n_cells).
        bars: Labels, predictions and half widths, (3, n); None without a committee.
    """

    quantity: Quantity
    split: str
    errors: Errors
    limits: Range
    shift: float
    points: Floats | None
    cells: NDArray[np.int64] | None
    bars: Floats | None


Panels = dict[str, list[Panel]]
"""As `Compared`."""


def make_panel(compared: Comparison, limits: Range, shift: float = 0.0) -> dict[str, Any]:
    """Return the extract of a comparison, for `read_panel`.

    Args:
        compared: The comparison.
        limits: Limits of both axes.
        shift: Subtracted from labels and predictions.
    """
    label, predicted = compared.label - shift, compared.predicted - shift
    many = len(label) > MOST_POINTS
    return {
        "name": compared.quantity.name,
        "split": compared.split,
        "errors": compared.errors.model_dump(),
        "limits": list(limits),
        "shift": shift,
        "points": None if many else shorten(np.stack([label, predicted])),
        "cells": _count_by_cell(label, predicted, limits) if many else None,
        "bars": _make_bars(compared, label, predicted),
    }


def read_panel(content: Mapping[str, Any]) -> Panel:
    """Read a panel from the extract that `make_panel` returns."""
    facts = dict(content)
    errors = Errors.model_validate(facts.pop("errors"))
    quantity, limits = find_quantity(facts.pop("name"), errors.unit), tuple(facts.pop("limits"))
    return Panel(quantity=quantity, errors=errors, limits=limits, **facts)


def _count_by_cell(label: Floats, predicted: Floats, limits: Range) -> NDArray[np.int64]:
    """Return places of hexagons in half steps, and their counts, (3, n_cells).

    Centres of hexagons are two rectangular lattices, shifted by half a step; a number belongs to
    the nearest centre.
    """
    x, y = ((v - limits[0]) / (limits[1] - limits[0]) for v in (label, predicted))
    steps = np.stack([x * _CELLS, y * _ROWS])
    corner, middle = np.round(steps), np.floor(steps) + 0.5
    weights = np.array([[1.0], [3.0]])
    to_corner, to_middle = (
        (weights * (steps - centre) ** 2).sum(axis=0) for centre in (corner, middle)
    )
    nearest = (2 * np.where(to_corner < to_middle, corner, middle)).astype(np.int64)
    places, counts = np.unique(nearest, axis=1, return_counts=True)
    return np.vstack([places, counts])


def _make_bars(compared: Comparison, label: Floats, predicted: Floats) -> Floats | None:
    """Return error bars of a committee: for each number, or for means if there are many."""
    if compared.half_width is None:
        return None
    bars = np.stack([label, predicted, compared.half_width])
    if len(label) > MOST_POINTS:
        parts = np.array_split(np.argsort(label, kind="stable"), _BARS)
        bars = np.stack([bars[:, some].mean(axis=1) for some in parts], axis=1)
    return shorten(bars)


def draw(experiment: ExperimentRun) -> Drawn:
    """Draw one row of panels per variant, one column per quantity."""
    rows = _read_rows(experiment)
    if not rows:
        return None
    names = list(dict.fromkeys(p.quantity.name for panels in rows.values() for p in panels))
    if len(names) == 1:
        return _draw_side_by_side(experiment, rows, names[0])
    width = style.PAGE if len(names) > 2 else style.COLUMN * len(names)
    height = 0.95 * width / len(names)
    figure, axes = style.make_canvas(len(rows), len(names), width=width, height=height)
    cells = {
        (variant, name): axes[row][column]
        for row, variant in enumerate(rows)
        for column, name in enumerate(names)
    }
    _fill(figure, cells, rows, results.name_reference(experiment))
    if len(rows) > 1:
        for row, variant in zip(axes, rows, strict=True):
            row[0].set_title(variant, weight="bold")
    return figure, make_table(rows)


def draw_quantity(experiment: ExperimentRun, name: str) -> Drawn:
    """Draw one quantity alone, one panel per variant; None if no variant predicts it."""
    everything = _read_rows(experiment).items()
    rows = {v: [p for p in panels if p.quantity.name == name] for v, panels in everything}
    rows = {variant: chosen for variant, chosen in rows.items() if chosen}
    return _draw_side_by_side(experiment, rows, name) if rows else None


def _draw_side_by_side(experiment: ExperimentRun, rows: Panels, name: str) -> tuple[Figure, Rows]:
    """Draw one quantity, one panel per variant."""
    figure, panels = style.make_grid(len(rows))
    cells = {(variant, name): panel for variant, panel in zip(rows, panels, strict=True)}
    _fill(figure, cells, rows, results.name_reference(experiment))
    for variant, panel in zip(rows, panels, strict=True):
        panel.set_title(variant if len(rows) > 1 else "")
    return figure, make_table(rows)


def _read_rows(experiment: ExperimentRun) -> Panels:
    rows = experiment.extract("parity", lambda: make_rows(_compare(experiment)))
    return {variant: list(map(read_panel, panels)) for variant, panels in rows.items()}


def make_rows(rows: Compared) -> dict[str, list[dict[str, Any]]]:
    """Return extracts of all panels; those of one quantity and head have the same axes."""
    everything = [c for compared in rows.values() for c in compared]
    axes = {}
    for c in everything:
        alike = [o for o in everything if (o.quantity, o.head) == (c.quantity, c.head)]
        shift = find_centre(alike)
        axes[c.quantity, c.head] = find_common_range(alike, shift), shift
    return {
        variant: [make_panel(c, *axes[c.quantity, c.head]) for c in compared]
        for variant, compared in rows.items()
    }


def _compare(experiment: ExperimentRun) -> Compared:
    runs = experiment.runs.values()
    hook = experiment.registry.select_hook("compare_committee", experiment.model_info.name)
    joint = {run.variant: hook(run=run) for run in runs if run.members}
    committees = {variant: one for variant, one in joint.items() if one is not None}
    left_out = {one.variant for v in committees for one in experiment.runs[v].members}
    comparisons: Compared = {}
    for variant, run in experiment.runs.items():
        if variant in committees:
            comparisons[run.label] = committees[variant]
        elif variant not in left_out:
            comparisons |= _read_run(run)
    return {variant: compared for variant, compared in comparisons.items() if compared}


def _read_run(run: Run) -> Compared:
    """Return the comparisons of a run, separately for each of several heads."""
    heads = predictions.list_heads(run)
    if not heads:
        return {run.label: predictions.read_comparisons(run)}
    return {f"{run.label}, {head}": predictions.read_comparisons(run, head) for head in heads}


def _fill(figure: Figure, cells: dict[tuple[str, str], Axes], rows: Panels, reference: str) -> None:
    """Draw every cell (variant, quantity)."""
    by_cell = {(v, p.quantity.name): p for v, panels in rows.items() for p in panels}
    densities = []
    for cell, axes in cells.items():
        if cell not in by_cell:
            axes.set_axis_off()
            continue
        panel = by_cell[cell]
        densities.append(draw_panel(axes, panel))
        _set_labels(axes, panel, reference)
    share_scale(figure, [density for density in densities if density is not None])


def find_centre(compared: Iterable[Comparison]) -> float:
    """Return the shift to subtract from values far from zero, such as total energies, else 0."""
    labels = np.concatenate([c.label for c in compared])
    mean = float(labels.mean())
    return mean if abs(mean) > _OFFSET * float(np.ptp(labels)) else 0.0


def find_common_range(compared: Iterable[Comparison], shift: float) -> Range:
    """Return limits around all labels and predictions, less `shift`, with a small margin."""
    values = np.concatenate([np.concatenate([c.label, c.predicted]) for c in compared]) - shift
    low, high = float(values.min()), float(values.max())
    margin = 0.04 * (high - low) or 1.0
    return low - margin, high + margin


def draw_panel(axes: Axes, panel: Panel) -> PolyCollection | None:
    """Draw one quantity.

    Returns:
        The density, whose scale the caller may set; None if points were drawn.
    """
    density, limits = None, panel.limits
    if panel.cells is not None:
        density = _draw_density(axes, panel.cells, limits)
    elif panel.points is not None:
        label, predicted = panel.points
        axes.scatter(label, predicted, s=5, color=style.COLOURS[0], alpha=0.5, linewidths=0)
    if panel.bars is not None:
        colour = style.COLOURS[0] if density is None else style.INK
        look: dict[str, Any] = {"fmt": "none", "elinewidth": 0.5, "alpha": 0.6}
        axes.errorbar(*panel.bars, ecolor=colour, **look)
    axes.plot(limits, limits, color=style.FAINT, linewidth=0.6, zorder=0 if density is None else 3)
    axes.set(xlim=limits, ylim=limits, aspect="equal")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(4))
    axes.text(
        0.04,
        0.98,
        _format_metrics(panel),
        transform=axes.transAxes,
        va="top",
        fontsize=6.5,
        linespacing=1.3,
        bbox={"color": "white", "alpha": 0.8, "pad": 1.0},
        zorder=4,
    )
    return density


def _draw_density(axes: Axes, cells: NDArray[np.int64], limits: Range) -> PolyCollection:
    columns, rows, counts = cells
    width = limits[1] - limits[0]
    return axes.hexbin(
        limits[0] + columns / 2 * width / _CELLS,
        limits[0] + rows / 2 * width / _ROWS,
        counts,
        reduce_C_function=np.sum,
        gridsize=_CELLS,
        extent=(*limits, *limits),
        mincnt=1,
        linewidths=0.1,
    )


def _format_metrics(panel: Panel) -> str:
    mae, rmse = (
        f"{format_number(error)} {panel.quantity.error_unit}" for error in _read_errors(panel)
    )
    lines = [f"MAE {mae}", f"RMSE {rmse}"]
    if panel.errors.r2 is not None:
        lines.append(f"R² {panel.errors.r2:.3f}".replace("-", "−"))
    return "\n".join(lines)


def _read_errors(panel: Panel) -> tuple[float, float]:
    """Return MAE and RMSE in the unit of errors."""
    mae, rmse, factor = panel.errors.mae, panel.errors.rmse, panel.quantity.error_factor
    assert mae is not None
    assert rmse is not None
    return mae * factor, rmse * factor


def _set_labels(axes: Axes, panel: Panel, reference: str) -> None:
    quantity, relative = panel.quantity, " − mean" if panel.shift else ""
    axes.set_xlabel(add_unit(f"{reference} {quantity.title}{relative}", quantity.unit))
    axes.set_ylabel(add_unit("predicted", quantity.unit))


def share_scale(figure: Figure, densities: Sequence[PolyCollection]) -> None:
    """Give all densities one logarithmic scale, and the figure one colour bar."""
    if not densities:
        return
    most = max(float(np.max(np.asarray(density.get_array()))) for density in densities)
    norm = LogNorm(1, max(most, 10))
    for density in densities:
        density.set_norm(norm)
    places = [axes.get_subplotspec() for axes in figure.axes]
    n_rows = len({place.rowspan.start for place in places if place is not None})
    bar = figure.colorbar(
        densities[0], ax=figure.axes, aspect=25, pad=0.01, shrink=0.8 / n_rows, anchor=(0.0, 0.98)
    )
    bar.set_label("numbers per cell")
    bar.outline.set_visible(False)


def make_table(rows: Panels) -> Rows:
    """Return the errors that the panels show, with a header."""
    return tabulate(
        {
            "variant": variant,
            "split": panel.split,
            "quantity": panel.quantity.name,
            "count": panel.errors.count,
            **dict(zip(("MAE", "RMSE"), _read_errors(panel), strict=True)),
            "R2": panel.errors.r2,
            "unit of errors": panel.quantity.error_unit,
        }
        for variant, panels in rows.items()
        for panel in panels
    )
