"""Figures of errors of forces, by element and by the size of the force."""

from collections.abc import Iterator
from functools import partial
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from pipeline_core.artifacts import store
from pipeline_core.artifacts.samples import SampleFile
from pipeline_core.fields import SPLITS, SYMBOLS
from pipeline_core.figures import Drawn, results, style
from pipeline_core.figures.errors import Errorbook, draw_bars, make_table, read_all_metrics
from pipeline_core.figures.quantities import add_unit, find_quantity
from pipeline_core.figures.results import Errors, Metrics
from pipeline_core.project.run import ExperimentRun, Run

Floats = NDArray[np.float64]

_ROW: Final = 24
"""Elements in one row of bars."""
_BINS: Final = 16
_FEWEST: Final = 20
"""Least number of atoms in an average over a range of forces."""


def draw_by_element(experiment: ExperimentRun) -> Drawn:
    """Draw the force error of each element on the held-out split, one colour per variant."""
    book = {v: dict(_list_by_element(m)) for v, m in read_all_metrics(experiment).items()}
    elements = sorted({e for errors in book.values() for e in errors}, key=SYMBOLS.index)
    if not elements:
        return None
    rows = [elements[i : i + _ROW] for i in range(0, len(elements), _ROW)]
    width = style.COLUMN if len(elements) < 10 else style.PAGE
    figure, axes = style.make_canvas(len(rows), 1, width=width, height=2.2, sharey=True)
    for (panel,), members in zip(axes, rows, strict=True):
        _draw_elements(panel, members, book)
        panel.set_xlim(-0.6, len(rows[0]) - 0.4)
    axes[-1][0].set_xlabel("element, number of atoms compared")
    style.add_legend_above(figure, axes[0][0])
    return figure, make_table("element", "forces", book)


def _list_by_element(report: Metrics) -> Iterator[tuple[str, Errors]]:
    if report.held_out is not None:
        for element, table in report.splits[report.held_out].elements.items():
            if "forces" in table and table["forces"].count:
                yield element, table["forces"]


def _draw_elements(axes: Axes, elements: list[str], book: Errorbook) -> None:
    forces = find_quantity("forces")
    draw_bars(axes, elements, book, forces.error_factor, "vertical")
    n_atoms = [max(e[name].count // 3 for e in book.values() if name in e) for name in elements]
    labels = [f"{name}\n{_format_compact(n)}" for name, n in zip(elements, n_atoms, strict=True)]
    axes.set_xticks(range(len(elements)), labels)
    axes.tick_params(axis="x", length=0, labelsize=6)
    axes.set_ylabel(add_unit("force MAE", forces.error_unit))


def _format_compact(number: int) -> str:
    """Return a count in few characters, such as 12k."""
    for limit, letter in ((1_000_000, "M"), (1_000, "k")):
        if number >= limit:
            return f"{number / limit:.{0 if number >= 10 * limit else 1}f}{letter}"
    return str(number)


def draw_by_size(experiment: ExperimentRun) -> Drawn:
    """Draw the error of the force vector against the size of the labelled force."""
    curves = {}
    for run in experiment.runs.values():
        rows = run.extract("errors_by_force", partial(_average_held_out, run))
        if rows is not None:
            curves[run.label] = rows
    if not curves:
        return None
    figure, ((axes,),) = style.make_canvas(height=2.6)
    for number, (variant, rows) in enumerate(curves.items()):
        colour = style.choose_colour(number)
        axes.plot(rows[:, 0], rows[:, 1], "o-", color=colour, label=variant)
        axes.fill_between(rows[:, 0], rows[:, 2], rows[:, 3], color=colour, alpha=0.15)
    axes.set(xscale="log", yscale="log")
    style.set_log_ticks(axes.xaxis)
    _draw_guides(axes, np.concatenate([rows[:, 0] for rows in curves.values()]))
    reference = results.name_reference(experiment)
    axes.set(xlabel=f"{reference} force |F| (eV/Å)", ylabel="force error |ΔF| (eV/Å)")
    style.add_legend_above(figure, axes)
    names = ("force_eV_per_A", "mean_error", "quartile_1", "quartile_3", "atoms")
    body = [[variant, *row] for variant, rows in curves.items() for row in rows.tolist()]
    return figure, [["variant", *names], *body]


def _average_held_out(run: Run) -> Floats | None:
    report = results.read_metrics(run)
    pair = read_forces(run).get(report.held_out or "") if report else None
    enough = pair is not None and len(pair[0]) >= 2 * _FEWEST
    return average_errors(*pair) if pair is not None and enough else None


def read_forces(run: Run) -> dict[str, tuple[Floats, Floats]]:
    """Return labelled and predicted forces of each predicted split, (n_atoms, 3) in eV/Å."""
    if not store.has_schema(run.predictions, "predictions"):
        return {}
    with SampleFile(run.predictions, "predictions") as file:
        if "forces_label" not in file.fields:
            return {}
        codes = np.repeat(file.read_column("split"), file.count_rows("atom"))
        label, predicted = file.read_column("forces_label"), file.read_column("forces_predicted")
    present = ~np.isnan(label).any(axis=1)
    forces = {}
    for code, split in enumerate(SPLITS):
        rows = present & (codes == code)
        if rows.any():
            forces[split] = label[rows].astype(np.float64), predicted[rows].astype(np.float64)
    return forces


def average_errors(label: Floats, predicted: Floats) -> Floats:
    """Average the errors of forces over ranges of the labelled force that hold equally many atoms.

    Args:
        label: (n_atoms, 3), eV/Å.
        predicted: (n_atoms, 3), eV/Å.

    Returns:
        (n_bins, 5): mean |F|, mean |ΔF|, first and third quartile of |ΔF|, number of atoms.
    """
    size = np.linalg.norm(label, axis=1)
    error = np.linalg.norm(predicted - label, axis=1)
    n_bins = max(2, min(_BINS, len(size) // _FEWEST))
    rows = [
        (size[part].mean(), error[part].mean(), *np.quantile(error[part], [0.25, 0.75]), len(part))
        for part in np.array_split(np.argsort(size, kind="stable"), n_bins)
    ]
    return np.asarray([row for row in rows if row[0] > 0])


def _draw_guides(axes: Axes, sizes: Floats) -> None:
    """Draw lines of relative errors of 10 % and 100 %."""
    low, high = axes.get_ylim()
    ends = np.asarray([sizes.min(), sizes.max()])
    for fraction, text in ((0.1, "10 %"), (1.0, "100 %")):
        axes.plot(ends, fraction * ends, ":", color=style.FAINT, linewidth=0.8, zorder=0)
        look = {"color": style.FAINT, "fontsize": 6.5, "annotation_clip": True}
        end = (ends[1], fraction * ends[1])
        style.annotate(axes, text, end, (2, 0), ha="left", va="center", **look)
    axes.set_ylim(min(low, 0.05 * float(ends[0])), max(high, float(ends[1])))
