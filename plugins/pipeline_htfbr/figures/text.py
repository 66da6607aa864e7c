"""Formats of numbers in the tables of HT-FBR."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline_core.figures.formats import format_number
from pipeline_htfbr.figures.fits import Fit


def format_time(seconds: float | None) -> str:
    """Format a time: 8.1 s, 12 min, 5 h 57 min."""
    if seconds is None:
        return "–"
    if seconds < 120:
        return f"{format_number(seconds, 2)} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if rest else f"{hours} h"


def format_ranks(fit: Fit) -> str:
    """Format the ranks of the nodes below the root: one number if they are equal."""
    return _shorten(fit.surface["ranks"][:-1])


def format_degrees(fit: Fit) -> str:
    """Format the degrees of the coordinates: one number if they are equal."""
    return _shorten(fit.surface["degrees"])


def _shorten(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, dict.fromkeys(numbers) if len(set(numbers)) < 2 else numbers))
