"""Predictions against labels of the held-out split: points for few numbers, density for many."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from pipeline_core.figures import Drawn, Rows, results, style
from pipeline_core.figures.quantities import Quantity, add_unit
from pipeline_core.figures.results import Comparison
from pipeline_core.figures.uncertainty import compare, list_committees, list_other_members
from pipeline_core.report.formats import format_number
from pipeline_core.run import ExperimentRun, Run

Range = tuple[float, float]

MOST_POINTS: Final = 1000
"""More numbers than this are drawn as a density."""
_CELLS: Final = 60
_BARS: Final = 12
"""Error bars over a density, each of equally many numbers."""
_OFFSET: Final = 10.0
"""Labels whose mean exceeds their range by this factor are shown relative to it."""


Compared = dict[str, list[Comparison]]
"""Variant, or variant and head of a model with several -> what was compared."""


def draw(experiment: ExperimentRun) -> Drawn:
    """Draw one row of panels a variant, one column a quantity."""
    rows = _read_rows(experiment)
    if not rows:
        return None
    names = list(dict.fromkeys(c.quantity.name for compared in rows.values() for c in compared))
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


def draw_forces(experiment: ExperimentRun) -> Drawn:
    """Draw the forces alone, one panel a variant."""
    return draw_quantity(experiment, "forces")


def draw_quantity(experiment: ExperimentRun, name: str) -> Drawn:
    """Draw one quantity alone, one panel a variant; None if no variant predicts it."""
    compared = _read_rows(experiment).items()
    rows = {v: [c for c in cs if c.quantity.name == name] for v, cs in compared}
    rows = {variant: chosen for variant, chosen in rows.items() if chosen}
    return _draw_side_by_side(experiment, rows, name) if rows else None


def _draw_side_by_side(experiment: ExperimentRun, rows: Compared, name: str) -> tuple[Figure, Rows]:
    """Draw one quantity, one panel a variant."""
    n_columns = min(3, len(rows))
    n_rows = -(-len(rows) // n_columns)
    width = style.PAGE if n_columns > 1 else style.COLUMN
    figure, axes = style.make_canvas(
        n_rows, n_columns, width=width, height=0.95 * width / n_columns
    )
    panels = [panel for row in axes for panel in row]
    cells = {(variant, name): panel for variant, panel in zip(rows, panels, strict=False)}
    _fill(figure, cells, rows, results.name_reference(experiment))
    for variant, panel in zip(rows, panels, strict=False):
        panel.set_title(variant if len(rows) > 1 else "")
    for panel in panels[len(rows) :]:
        panel.set_axis_off()
    return figure, make_table(rows)


def _read_rows(experiment: ExperimentRun) -> Compared:
    committees, left_out = list_committees(experiment), list_other_members(experiment)
    comparisons: Compared = {}
    for variant, run in experiment.runs.items():
        if variant in committees:
            comparisons[run.label] = compare(run, committees[variant])
        elif variant not in left_out:
            comparisons |= _read_run(run)
    return {variant: compared for variant, compared in comparisons.items() if compared}


def _read_run(run: Run) -> Compared:
    """Return what was compared of a run, each of several heads by itself."""
    heads = results.list_heads(run)
    if not heads:
        return {run.label: results.read_comparisons(run)}
    return {f"{run.label}, {head}": results.read_comparisons(run, head) for head in heads}


def _fill(
    figure: Figure, cells: dict[tuple[str, str], Axes], rows: Compared, reference: str
) -> None:
    """Draw every cell (variant, quantity); a quantity has the same axes in all of one head."""
    by_cell = {(v, c.quantity.name): c for v, compared in rows.items() for c in compared}
    densities = []
    for (variant, name), axes in cells.items():
        if (variant, name) not in by_cell:
            axes.set_axis_off()
            continue
        compared = by_cell[variant, name]
        shared = [c for (_, n), c in by_cell.items() if n == name and c.head == compared.head]
        shift = find_centre(shared)
        densities.append(draw_panel(axes, compared, find_common_range(shared, shift), shift))
        _set_labels(axes, compared.quantity, reference, shift)
    share_scale(figure, [density for density in densities if density is not None])


def find_centre(compared: Iterable[Comparison]) -> float:
    """Return what is subtracted from values far from zero, such as total energies, else zero."""
    labels = np.concatenate([c.label for c in compared])
    mean = float(labels.mean())
    return mean if abs(mean) > _OFFSET * float(np.ptp(labels)) else 0.0


def find_common_range(compared: Iterable[Comparison], shift: float) -> Range:
    """Return limits that hold all labels and predictions, less `shift`, with a small margin."""
    values = np.concatenate([np.concatenate([c.label, c.predicted]) for c in compared]) - shift
    low, high = float(values.min()), float(values.max())
    margin = 0.04 * (high - low) or 1.0
    return low - margin, high + margin


def draw_panel(
    axes: Axes, compared: Comparison, limits: Range, shift: float = 0.0
) -> PolyCollection | None:
    """Draw one quantity.

    Args:
        axes: Where.
        compared: What.
        limits: Of both axes.
        shift: Subtracted from labels and predictions.

    Returns:
        The density, whose scale the caller may set; None if points were drawn.
    """
    label, predicted = compared.label - shift, compared.predicted - shift
    density = None
    if len(label) > MOST_POINTS:
        density = axes.hexbin(
            label, predicted, gridsize=_CELLS, extent=(*limits, *limits), mincnt=1, linewidths=0.1
        )
    else:
        axes.scatter(label, predicted, s=5, color=style.COLOURS[0], alpha=0.5, linewidths=0)
    _draw_intervals(axes, compared, shift)
    axes.plot(limits, limits, color=style.FAINT, linewidth=0.6, zorder=0 if density is None else 3)
    axes.set(xlim=limits, ylim=limits, aspect="equal")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(4))
    axes.text(
        0.04,
        0.98,
        _format_metrics(compared),
        transform=axes.transAxes,
        va="top",
        fontsize=6.5,
        linespacing=1.3,
        bbox={"color": "white", "alpha": 0.8, "pad": 1.0},
        zorder=4,
    )
    return density


def _draw_intervals(axes: Axes, compared: Comparison, shift: float) -> None:
    """Draw error bars of a committee: of each number, or where there are many of their means."""
    if compared.half_width is None:
        return
    label, predicted, half = compared.label - shift, compared.predicted - shift, compared.half_width
    if len(label) > MOST_POINTS:
        parts = np.array_split(np.argsort(label, kind="stable"), _BARS)
        label, predicted, half = (
            np.array([values[some].mean() for some in parts]) for values in (label, predicted, half)
        )
    colour = style.INK if len(compared.label) > MOST_POINTS else style.COLOURS[0]
    axes.errorbar(label, predicted, half, fmt="none", ecolor=colour, elinewidth=0.5, alpha=0.6)


def _format_metrics(compared: Comparison) -> str:
    mae, rmse = (
        f"{format_number(error)} {compared.quantity.error_unit}" for error in _read_errors(compared)
    )
    lines = [f"MAE {mae}", f"RMSE {rmse}"]
    if compared.errors.r2 is not None:
        lines.append(f"R² {compared.errors.r2:.3f}".replace("-", "−"))
    return "\n".join(lines)


def _read_errors(compared: Comparison) -> tuple[float, float]:
    """Return MAE and RMSE in the unit of errors."""
    mae, rmse, factor = compared.errors.mae, compared.errors.rmse, compared.quantity.error_factor
    assert mae is not None
    assert rmse is not None
    return mae * factor, rmse * factor


def _set_labels(axes: Axes, quantity: Quantity, reference: str, shift: float) -> None:
    relative = " − mean" if shift else ""
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


def make_table(rows: Compared) -> Rows:
    """Return the errors that the panels show, with a header."""
    header: list[object] = [
        "variant",
        "split",
        "quantity",
        "count",
        "MAE",
        "RMSE",
        "R2",
        "unit of errors",
    ]
    body: Rows = [
        [
            variant,
            c.split,
            c.quantity.name,
            c.errors.count,
            *_read_errors(c),
            c.errors.r2,
            c.quantity.error_unit,
        ]
        for variant, compared in rows.items()
        for c in compared
    ]
    return [header, *body]
