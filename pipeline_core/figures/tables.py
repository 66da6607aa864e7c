"""Tables as pictures, for reports that show pictures alone: three rules, no grid."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pipeline_core.figures import style

_LINE: Final = 0.15
"""Height of a line of text, inches."""
_GAP: Final = 0.4
"""Space between two rows, in lines."""
_CHARACTER: Final = 0.057
"""Width of a character at most, on average, inches."""


def draw(header: Sequence[str], rows: Sequence[Sequence[str]], widths: Sequence[float]) -> Figure:
    """Draw a table as wide as a page.

    Args:
        header: Titles of the columns.
        rows: Cells; long ones are wrapped.
        widths: Part of the width that each column has; they add up to 1.
    """
    cells = [[_wrap(c, w) for c, w in zip(row, widths, strict=True)] for row in (header, *rows)]
    n_lines = [max(len(cell) for cell in row) for row in cells]
    height = _LINE * (sum(n_lines) + _GAP * len(n_lines) + 1)
    figure = Figure(figsize=(style.PAGE, height))
    axes = figure.add_axes((0.01, 0, 0.98, 1))
    axes.set(xlim=(0, 1), ylim=(height, 0))
    axes.set_axis_off()
    top = 0.5 * _LINE
    _draw_rule(axes, top)
    for number, row in enumerate(cells):
        _draw_row(axes, row, widths, top + 0.5 * _GAP * _LINE, "normal" if number else "bold")
        top += _LINE * (n_lines[number] + _GAP)
        if number in (0, len(cells) - 1):
            _draw_rule(axes, top)
    return figure


def _wrap(cell: str, width: float) -> list[str]:
    return wrap(cell, max(8, int(width * style.PAGE / _CHARACTER))) or [""]


def _draw_row(
    axes: Axes, row: Sequence[Sequence[str]], widths: Sequence[float], top: float, weight: str
) -> None:
    left = 0.0
    for cell, width in zip(row, widths, strict=True):
        for number, line in enumerate(cell):
            axes.text(left, top + _LINE * (number + 0.8), line, fontsize=7, weight=weight)
        left += width


def _draw_rule(axes: Axes, height: float) -> None:
    axes.plot([0, 1], [height, height], color=style.INK, linewidth=0.7, clip_on=False)
