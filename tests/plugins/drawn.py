"""Experiments that ship, to be drawn, and what their figures show in tables and drawings."""

from pathlib import Path

from pipeline_core.figures.expected import read_expected
from pipeline_core.project.project import Project
from pipeline_core.stages.builtin import load_registry

ROOT = Path(__file__).parents[2]


def load_shipped(folder, name):
    """Return an experiment that ships with a plugin, with results in a folder."""
    return Project(ROOT / "workflows", folder, load_registry()).load_experiment(name)


def read_numbers(plugin):
    """Return the numbers of the paper of a plugin by their names."""
    path = ROOT / "workflows/experiments" / plugin / "expected.yaml"
    return {entry.id: entry for entry in read_expected(path).entries}


def select_rows(table, **wanted):
    """Return the rows of a table with these values, as dicts."""
    result = [dict(zip(table[0], row, strict=True)) for row in table[1:]]
    return [row for row in result if all(row[key] == value for key, value in wanted.items())]


def find_row(table, **wanted):
    """Return the one row with these values."""
    (row,) = select_rows(table, **wanted)
    return row


def list_titles(figure):
    """Return the title of each panel."""
    return [axes.get_title(loc="left") for axes in figure.axes]
