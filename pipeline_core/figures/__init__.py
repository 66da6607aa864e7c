"""Definition of a figure. Figure code reads small files of evaluate and infer, never a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

    from pipeline_core.project.run import ExperimentRun


Rows: TypeAlias = list[list[object]]
"""The content of a figure as a table: rows of cells, the first with column names."""

Drawn: TypeAlias = "tuple[Drawing | None, Rows] | None"
"""A matplotlib figure with its table, or a table alone; None if the experiment has nothing to
show."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure that can be drawn for an experiment.

    Attributes:
        name: Name of its files, lower case with underscores.
        title: One line for the report.
        caption: Explanation for a reader of the report.
        category: Heading in the report: "Data", "Training", "Accuracy", "Dynamics", "Properties",
            "Balance", or one of the plugin's own. A figure of "Overview" is only the small picture
            of its experiment in the list of experiments.
        draw: Function (experiment) -> (matplotlib figure, table), or None if the experiment has
            nothing to show, for example no molecular dynamics. Without a matplotlib figure the
            report shows the table, if it has rows.
        plugin: Name of the model whose variants it draws; None for all variants. The engine sets
            it for the figures of a plugin with a model.
        paper: Whether it reproduces a figure of the model's paper: it is then drawn only for the
            experiments of that paper, see `expected.is_of_paper`, or if an experiment names it.
    """

    name: str
    title: str
    caption: str
    category: str
    draw: Callable[[ExperimentRun], Drawn]
    plugin: str | None = None
    paper: bool = False


def tabulate(rows: Iterable[Mapping[str, object]]) -> Rows:
    """Return rows with the same keys as a table with a header."""
    table: Rows = []
    for row in rows:
        table += [list(row.values())] if table else [list(row), list(row.values())]
    return table


__all__ = ["Drawn", "Figure", "Rows", "tabulate"]
