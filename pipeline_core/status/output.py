"""Plain text for people: aligned, without frames, easy to search."""

from collections.abc import Mapping, Sequence
from typing import Any


def align(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as lines whose columns begin at the same place."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(w.ljust(n) for w, n in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def count(number: int, noun: str) -> str:
    """Return a number with a noun: "1 file", "2 files"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def format_summary(summary: Mapping[str, Any]) -> str:
    """Return a summary as aligned lines, name and value; dots join nested names."""
    rows = list(_flatten(summary, ""))
    return align(rows) if rows else ""


def _flatten(summary: Mapping[str, Any], prefix: str) -> Sequence[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for name, value in summary.items():
        if isinstance(value, Mapping):
            rows += _flatten(value, f"{prefix}{name}.")
        else:
            rows.append((f"{prefix}{name}", _format_value(value)))
    return rows


def _format_value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(_format_value, value)) or "none"
    return "none" if value is None else str(value)
