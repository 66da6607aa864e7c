"""Tables of pages, and their numbers beside those of the records that they come from."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

ROOT = Path(__file__).parents[3]
NUMBER = re.compile(r"(?<![\w.^])[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?(?:\(\d+\))?(?![\w^])")
"""A number that a cell shows, with the error of its last digits if it has one: 0.745(12)."""

Cell: TypeAlias = Sequence[float] | None
"""The numbers of a cell in order, or None for words and settings."""


@dataclass(frozen=True)
class Claim:
    """A table and what its rows have to show.

    Attributes:
        header: Its first line, as the page has it.
        records: Names of the records, each of which the section of the table names in backticks:
            a file of `tests/benchmarks/results`, or an experiment whose evidence is kept.
        compute: Read the records; return the cells of each row.
    """

    header: str
    records: tuple[str, ...]
    compute: Callable[[], Sequence[Sequence[Cell]]]


@dataclass(frozen=True)
class Table:
    """A table of a page, with the text of the section that it stands in."""

    header: str
    rows: list[list[str]]
    section: str


def read_tables(page: Path) -> Iterator[Table]:
    """Yield the tables of a page in Markdown."""
    for section in re.split(r"^(?=#+ )", page.read_text(encoding="utf-8"), flags=re.MULTILINE):
        for block in re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE):
            header, _, *rows = block.splitlines()
            yield Table(header, [_split_row(row) for row in rows], section)


def _split_row(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")]


def compare(table: Table, rows: Sequence[Sequence[Cell]]) -> list[str]:
    """Compare a table with its records; return what differs, cell by cell."""
    if len(rows) != len(table.rows):
        return [f"{len(table.rows)} rows where the records give {len(rows)}"]
    faults = []
    for shown, known in zip(table.rows, rows, strict=True):
        if len(shown) != len(known):
            faults.append(f"{shown}: {len(known)} cells by the records")
            continue
        for cell, values in zip(shown, known, strict=True):
            if values is not None and not _agrees(cell, values):
                exact = ", ".join(f"{value:.6g}" for value in values)
                faults.append(f"{shown[0] or shown[1]}: {cell!r} where the records have {exact}")
    return faults


def _agrees(cell: str, values: Sequence[float]) -> bool:
    """Tell whether a cell shows these values, each rounded to the digits that are shown."""
    numbers = [number for text in NUMBER.findall(cell) for number in _parse_number(text)]
    return len(numbers) == len(values) and all(
        abs(shown - value) <= 0.5 * unit * (1 + 1e-9) + 1e-12 * abs(value)
        for (shown, unit), value in zip(numbers, values, strict=True)
    )


def _parse_number(text: str) -> list[tuple[float, float]]:
    """Return what is shown and the unit of its last digit; of an error in brackets, too."""
    plain, _, error = text.rstrip(")").partition("(")
    mantissa, _, exponent = plain.replace(",", "").partition("e")
    unit = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
    numbers = [(float(plain.replace(",", "")), unit)]
    return [*numbers, (int(error) * unit, unit)] if error else numbers
