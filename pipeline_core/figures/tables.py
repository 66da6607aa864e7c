"""Tables as pictures, for reports that show pictures alone: three rules, no grid."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font

from pipeline_core.figures import style

_LINE: Final = 0.15
"""Height of a line of text, inches."""
_GAP: Final = 0.4
"""Space between two rows, in lines."""
_SPACE: Final = 6.5
"""Space between two columns, points."""
_SIZE: Final = 7.0
"""Size of the text, points."""
_PART: Final = 0.98
"""Fraction of the width of the figure."""


def draw(header: Sequence[str], rows: Sequence[Sequence[str]], widths: Sequence[float]) -> Figure:
    """Draw a table as wide as a page.

    Args:
        header: Titles of the columns.
        rows: Cells; long ones are wrapped.
        widths: Fraction of the width of each column; they add up to 1.
    """
    rooms = [72 * _PART * style.PAGE * width - _SPACE for width in widths]
    weights = ["bold", *["normal"] * len(rows)]
    cells = [
        [_wrap(cell, room, weight) for cell, room in zip(row, rooms, strict=True)]
        for row, weight in zip((header, *rows), weights, strict=True)
    ]
    n_lines = [max(len(cell) for cell in row) for row in cells]
    height = _LINE * (sum(n_lines) + _GAP * len(n_lines) + 1)
    figure = Figure(figsize=(style.PAGE, height))
    axes = figure.add_axes(((1 - _PART) / 2, 0, _PART, 1))
    axes.set(xlim=(0, 1), ylim=(height, 0))
    axes.set_axis_off()
    top = 0.5 * _LINE
    _draw_rule(axes, top)
    for number, row in enumerate(cells):
        _draw_row(axes, row, widths, top + 0.5 * _GAP * _LINE, weights[number])
        top += _LINE * (n_lines[number] + _GAP)
        if number in (0, len(cells) - 1):
            _draw_rule(axes, top)
    return figure


def _wrap(cell: str, room: float, weight: str) -> list[str]:
    """Break a text into lines of at most `room` points; a word that is longer is broken too."""
    lines = [""]
    for word in cell.split():
        joined = f"{lines[-1]} {word}".strip()
        if _measure(joined, weight) <= room:
            lines[-1] = joined
        else:
            lines[-1:] = [*filter(None, [lines[-1]]), *_break_word(word, room, weight)]
    return lines


def _break_word(word: str, room: float, weight: str) -> list[str]:
    parts = [""]
    for character in word:
        if _measure(parts[-1] + character, weight) > room and parts[-1]:
            parts.append("")
        parts[-1] += character
    return parts


def _measure(text: str, weight: str) -> float:
    """Return the length of a line, points."""
    return sum(_measure_character(character, weight) for character in text)


@cache
def _measure_character(character: str, weight: str) -> float:
    font = get_font(findfont(FontProperties(family="DejaVu Sans", weight=weight)))
    font.set_size(_SIZE, 72)
    advance: float = font.load_char(ord(character)).linearHoriAdvance / 65536
    return advance


def _draw_row(
    axes: Axes, row: Sequence[Sequence[str]], widths: Sequence[float], top: float, weight: str
) -> None:
    left = 0.0
    for cell, width in zip(row, widths, strict=True):
        for number, line in enumerate(cell):
            axes.text(left, top + _LINE * (number + 0.8), line, fontsize=_SIZE, weight=weight)
        left += width


def _draw_rule(axes: Axes, height: float) -> None:
    axes.plot([0, 1], [height, height], color=style.INK, linewidth=0.7, clip_on=False)
