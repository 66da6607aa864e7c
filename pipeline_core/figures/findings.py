"""Contributions of plugins to the report besides figures: numbers, tables and warnings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, kw_only=True)
class Findings:
    """Content of the report on an experiment besides figures.

    Attributes:
        numbers: Key numbers of the base variant.
        tables: Results of all variants.
        warnings: Sentences on faults, or possible faults.
    """

    numbers: Sequence[Number] = ()
    tables: Sequence[Table] = ()
    warnings: Sequence[str] = ()
