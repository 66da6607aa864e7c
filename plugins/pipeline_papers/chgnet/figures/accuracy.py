"""Figure 7 and Tables I and II of the paper: predictions of the networks, errors, steps of MD."""

from collections.abc import Mapping
from textwrap import fill
from typing import Any, Final

from pipeline_core.figures import Drawn, parity, reproduction, style, tabulate
from pipeline_core.figures.predictions import Comparison, read_comparisons
from pipeline_core.figures.quantities import add_unit
from pipeline_core.project.run import ExperimentRun
from pipeline_papers.chgnet.figures.courses import NETWORKS, Course, read_courses

_TABLE_1: Final = {
    "chgnet": "CHGNet 0.3.0",
    "no_head": "FastCHGNet without heads",
    "heads": "FastCHGNet with heads",
}
"""Prefixes of the ids of `expected.yaml`, in the order of the rows."""
_ERRORS: Final = {
    "parameters": "parameters",
    "energy": "energy MAE (meV/atom)",
    "force": "force MAE (meV/Å)",
    "stress": "stress MAE (GPa)",
    "magmom": "moment MAE (mµB)",
}
_TABLE_2: Final = {
    "limno2": "LiMnO2, 8 atoms",
    "litipo5": "LiTiPO5, 32 atoms",
    "li9co7o16": "Li9Co7O16, 32 atoms",
}
_STEPS: Final = {"chgnet": "CHGNet (s)", "fast": "FastCHGNet (s)", "speedup": "speed-up"}
_TITLES: Final = 84
"""Characters of titles side by side."""
_PARITY: Final = ("energy_per_atom", "forces")

Compared = dict[str, Comparison]
"""Quantity -> labels and predictions."""


def draw_table_1(experiment: ExperimentRun) -> Drawn:
    """Tabulate the errors of the networks, the paper's and ours, as Table I."""
    return _draw_table(experiment, "network", _TABLE_1, _ERRORS)


def draw_table_2(experiment: ExperimentRun) -> Drawn:
    """Tabulate times of a step of molecular dynamics, the paper's and ours, as Table II."""
    return _draw_table(experiment, "crystal", _TABLE_2, _STEPS)


def _draw_table(
    experiment: ExperimentRun,
    title: str,
    rows: Mapping[str, str],
    columns: Mapping[str, str],
) -> Drawn:
    """Tabulate the entries `<row>_<column>` of the paper's numbers, and ours."""
    report = reproduction.compare(experiment)
    by_id = {entry["id"]: entry for entry in report["entries"]} if report else {}
    entries = {row: [by_id.get(f"{row}_{column}") for column in columns] for row in rows}
    if not any(e and e["ours"] is not None for of_row in entries.values() for e in of_row):
        return None
    return None, tabulate(
        {
            "whose": whose,
            title: name,
            **dict(zip(columns.values(), (e and e[whose] for e in entries[row]), strict=True)),
        }
        for whose in ("paper", "ours")
        for row, name in rows.items()
    )


def draw_parity(experiment: ExperimentRun) -> Drawn:
    """Draw energies and forces against labels on the test split, a column for each network."""
    extract = experiment.extract("figure7", lambda: _make_panels(_read_columns(experiment)))
    columns = {
        name: {quantity: parity.read_panel(one) for quantity, one in panels.items()}
        for name, panels in extract.items()
    }
    if len(columns) < 2:
        return None
    width = min(style.PAGE, 2.5 * len(columns) + 0.5)
    figure, rows = style.make_canvas(
        2, len(columns), width=width, height=1.05 * width / len(columns)
    )
    densities = []
    for row, quantity in zip(rows, _PARITY, strict=True):
        alike = [by_quantity[quantity] for by_quantity in columns.values()]
        densities += [parity.draw_panel(axes, one) for axes, one in zip(row, alike, strict=True)]
        shown = alike[0].quantity
        title = f"{shown.title} − mean" if alike[0].shift else shown.title
        for axes in row:
            axes.set_xlabel(fill(add_unit(f"DFT {title}", shown.unit), _TITLES // len(columns)))
        row[0].set_ylabel("predicted")
    parity.share_scale(figure, [density for density in densities if density is not None])
    for axes, name in zip(rows[0], columns, strict=True):
        axes.set_title(fill(name, _TITLES // len(columns)))
    return figure, parity.make_table({name: [c[q] for q in _PARITY] for name, c in columns.items()})


def _make_panels(columns: dict[str, Compared]) -> dict[str, dict[str, Any]]:
    """Return an extract of columns; each quantity has the same axes in all columns."""
    rows = parity.make_rows({name: [c[q] for q in _PARITY] for name, c in columns.items()})
    return {name: dict(zip(_PARITY, panels, strict=True)) for name, panels in rows.items()}


def _read_columns(experiment: ExperimentRun) -> dict[str, Compared]:
    """Return name -> panels of published weights and of the longest training of each kind."""
    columns: dict[str, tuple[str, Compared]] = {}
    for course in sorted(read_courses(experiment), key=_rank):
        compared = read_comparisons(course.run)
        panels = {c.quantity.name: c for c in compared if c.split == "test"}
        if set(_PARITY) <= set(panels):
            columns.setdefault(course.kind if course.epochs else "", (course.name, panels))
    return dict(columns.values())


def _rank(course: Course) -> tuple[bool, int, int]:
    return course.epochs > 0, NETWORKS.index(course.kind), -course.epochs
