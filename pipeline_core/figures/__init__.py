"""What a figure is. Figure code reads the small files of evaluate and infer, never a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

    from pipeline_core.run import ExperimentRun


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure that can be drawn for an experiment.

    Attributes:
        name: Name of its files, lower case with underscores.
        title: One line for the report.
        caption: What is seen, for a reader of the report.
        category: Heading in the report: "Overview", "Data", "Training", "Accuracy", "Dynamics",
            "Balance", "Reproduction", "Provenance", or one of the plugin's own.
        draw: Function (experiment) -> (matplotlib figure, table as list of rows with a header
            row), or None if the experiment has nothing to show, for example no molecular dynamics.
        plugin: Name of the model that it belongs to, whose variants alone it then draws; None for
            all.
    """

    name: str
    title: str
    caption: str
    category: str
    draw: Callable[[ExperimentRun], tuple[Drawing, list[list[object]]] | None]
    plugin: str | None = None


__all__ = ["Figure"]
