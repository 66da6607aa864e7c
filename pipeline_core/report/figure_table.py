"""Tables that a figure gives in place of a picture, for readers of the report."""

import csv
import re
from io import StringIO
from math import isfinite
from typing import Final

from pipeline_core.figures import Figure
from pipeline_core.figures.findings import Table

_NUMBER: Final = re.compile(r"-?((0|[1-9]\d*)(\.\d+)?(e[-+]?\d+)?|inf)|nan")
_LONG: Final = (1e3, 1e12)
"""Numbers of these sizes are written without decimals, and with separators of thousands."""


def make_table(figure: Figure, content: bytes) -> Table:
    """Return the table of a figure without a picture.

    Args:
        figure: The figure.
        content: Its rows as CSV.
    """
    header, *rows = csv.reader(StringIO(content.decode()))
    return Table(
        title=figure.title,
        header=[name.replace("_", " ").replace("cm-1", "(cm⁻¹)") for name in header],
        rows=[[_format_cell(cell) for cell in row] for row in rows],
        note=figure.caption,
        file=f"{figure.name}.csv",
    )


def _format_cell(text: str) -> str:
    """Format what a number of Python is in a CSV; names such as 1_2 and 007 stay as they are."""
    if not _NUMBER.fullmatch(text):
        return text or "–"
    number = float(text)
    if not isfinite(number):
        return text.replace("inf", "∞")
    is_long = _LONG[0] <= abs(number) < _LONG[1]
    return f"{number:{',.0f' if is_long else '.4g'}}".replace("-", "−")
