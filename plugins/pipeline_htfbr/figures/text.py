"""Numbers as the tables of HT-FBR show them."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline_core.report.formats import format_number
from pipeline_htfbr.figures.fits import Fit

_MINUS = "−"


def format_loss(value: float | None, decimals: int = 2) -> str:
    """Return an error in hartree as the paper writes it, 3.7e−4: the digits it has, but not more.

    Args:
        value: The error.
        decimals: Digits at most behind the point.
    """
    if value is None:
        return "–"
    if value == 0:
        return "0"
    mantissa, exponent = f"{value:.{decimals}e}".split("e")
    if decimals > 1 and float(f"{value:.1e}") == value:
        mantissa = mantissa[:3]
    return f"{mantissa}e{int(exponent)}".replace("-", _MINUS)


def format_time(seconds: float | None) -> str:
    """Return a time: 8.1 s, 12 min, 5 h 57 min."""
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
    """Return the ranks of the nodes below the root: one number if they are alike."""
    return _shorten(fit.surface["ranks"][:-1])


def format_degrees(fit: Fit) -> str:
    """Return the degrees of the coordinates: one number if they are alike."""
    return _shorten(fit.surface["degrees"])


def _shorten(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, dict.fromkeys(numbers) if len(set(numbers)) < 2 else numbers))
