"""Contributions of plugins to the report besides figures: numbers, tables, warnings and code."""

from typing import Literal

from pydantic import BaseModel, ConfigDict


class Part(BaseModel):
    """Base class of the parts of a report."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Number(Part):
    """A number that a reader should see first."""

    title: str
    """Name of the quantity."""
    value: str
    """The number with its unit, for readers."""
    note: str = ""
    """Context to judge it by."""
    amount: float | None = None
    """The number itself, in `unit`, by which variants are compared and seeds averaged."""
    unit: str = ""
    better: Literal["less", "more"] | None = None
    """The better one of two amounts; null if neither is."""
    problem: str = ""
    """The problem solved, where variants may have different ones, which cannot be compared."""


class Table(Part):
    """A table with a heading."""

    title: str
    header: list[str] = []
    rows: list[list[str]]
    note: str = ""
    marked: int | None = None
    """Number of the row that stands out; null for none."""
    file: str = ""
    """Name of the CSV file of the table beside the page; empty for none."""


class Snippet(Part):
    """Lines to copy."""

    title: str
    code: str
    note: str = ""


class Headline(Part):
    """Result of a run in a plugin's words, in place of errors: `headline` in its metrics."""

    verdict: str
    """One sentence."""
    numbers: list[Number]
    """Key numbers."""


class Findings(Part):
    """Content of the report on an experiment besides figures, from the hook `findings`."""

    numbers: list[Number] = []
    """Key numbers of the base variant."""
    tables: list[Table] = []
    """Results of all variants."""
    warnings: list[str] = []
    """Sentences on faults, or possible faults."""
    snippets: list[Snippet] = []
    """Lines to copy, such as those that load a model."""
