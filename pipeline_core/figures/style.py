"""Common style of all figures: sizes of a paper column, few colours, for the colour-blind, too.

The colours are those of Okabe and Ito, "Color Universal Design" (2008), without the yellow, which
does not show on white. Densities use viridis, whose lightness rises evenly.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
INK: Final = "#222222"
FAINT: Final = "#8C8C8C"
COLUMN: Final = 3.4
"""Width of one column of a paper, inches."""
PAGE: Final = 7.0
"""Width of both columns, inches."""

_TICKS_APART: Final = 1.6
"""Ratio of two numbers of ranks that are both written on an axis, at least."""
_HANDLE: Final = 0.45
_CHARACTER: Final = 0.065
"""Widths of the handle and of a character of a legend, at most, inches."""

_SETTINGS: Final[dict[Any, Any]] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so the bytes are the same everywhere
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "legend.handlelength": 1.4,
    "mathtext.default": "regular",
    "axes.linewidth": 0.6,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.formatter.useoffset": False,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.width": 0.4,
    "ytick.minor.width": 0.4,
    "xtick.major.size": 3,
    "ytick.major.size": 3,
    "xtick.minor.size": 1.5,
    "ytick.minor.size": 1.5,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.5,
    "patch.linewidth": 0.0,
    "hatch.linewidth": 0.6,
    "svg.hashsalt": "pipeline-core",  # else the names of clip paths are drawn at random
    "pdf.fonttype": 42,  # outlines that journals and editors of vector graphics accept
}


@contextmanager
def apply_style() -> Iterator[None]:
    """Draw and save in this style inside the block, regardless of the user's settings."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS)
        yield


def make_canvas(
    n_rows: int = 1,
    n_columns: int = 1,
    *,
    width: float = COLUMN,
    height: float = 2.4,
    **subplots: Any,
) -> tuple[Figure, list[list[Axes]]]:
    """Return an empty figure and its axes, row by row.

    Args:
        n_rows: Rows of axes.
        n_columns: Columns of axes.
        width: Width of the figure, inches.
        height: Height of one row, inches.
        **subplots: Further arguments of `Figure.subplots`.
    """
    figure = Figure(figsize=(width, height * n_rows), layout="constrained")
    axes = figure.subplots(n_rows, n_columns, squeeze=False, **subplots)
    return figure, [list(row) for row in axes]


def make_grid(
    count: int, *, height: float | None = None, most_columns: int = 3, width: float | None = None
) -> tuple[Figure, list[Axes]]:
    """Return a figure with `count` panels, row by row.

    Args:
        count: At least one.
        height: Height of a row, inches; None for square panels.
        most_columns: Largest number of panels side by side.
        width: Width of the figure, inches; None for a column, or for a page with several panels.
    """
    n_columns = min(count, most_columns)
    width = width or (PAGE if n_columns > 1 else COLUMN)
    height = height or 0.95 * width / n_columns
    figure, rows = make_canvas(-(-count // n_columns), n_columns, width=width, height=height)
    panels = [axes for row in rows for axes in row]
    for axes in panels[count:]:
        axes.set_axis_off()
    return figure, panels[:count]


def annotate(
    axes: Axes,
    text: str,
    place: tuple[float, float],
    offset: tuple[float, float] = (0, 0),
    **look: Any,
) -> None:
    """Write small text beside a place.

    Args:
        axes: The panel.
        text: One line or several.
        place: In data coordinates, unless `look` has other `xycoords`.
        offset: Distance from the place, points.
        **look: Further arguments of `Axes.annotate`.
    """
    small: dict[str, Any] = {"ha": "center", "fontsize": 6, **look}
    axes.annotate(text, place, offset, textcoords="offset points", **small)


def choose_colour(number: int) -> str:
    """Return the colour of the curve with this number; they repeat after the seventh."""
    return COLOURS[number % len(COLOURS)]


def set_log_ticks(axis: Axis) -> None:
    """Label a logarithmic axis with plain numbers, at 1, 2 and 5 where it spans little."""
    low, high = sorted(axis.get_view_interval())
    few_decades = high < 300 * low
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if few_decades else (1,)))
    axis.set_minor_formatter(NullFormatter())
    if low > 1e-4 and high < 1e5:
        axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))


def set_rank_axis(axes: Axes, ranks: Iterable[int], label: str = "number of ranks") -> None:
    """Put numbers of ranks on a logarithmic x axis, the largest one always."""
    axes.set_xscale("log", base=2)
    ticks: list[int] = []
    for n in sorted(set(ranks), reverse=True):
        if not ticks or ticks[-1] >= _TICKS_APART * n:
            ticks.append(n)
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.set_xlabel(label)


def add_legend_above(figure: Figure, axes: Axes) -> None:
    """Put one legend for the whole figure above its axes, if there is more than one curve."""
    handles, labels = axes.get_legend_handles_labels()
    if len(labels) > 1:
        width = _HANDLE + _CHARACTER * max(len(label) for label in labels)
        n_columns = max(1, min(len(labels), int(figure.get_figwidth() / width)))
        figure.legend(handles, labels, loc="outside upper left", ncols=n_columns)


def add_legend_with_room(axes: Axes) -> None:
    """Put a legend at the top of a panel, above its curves."""
    low, high = axes.get_ylim()
    n_lines = len(axes.get_legend_handles_labels()[1])
    room = min(0.6, 0.1 * n_lines)
    axes.set_ylim(low, low + (high - low) / (1 - room))
    axes.legend(loc="upper right")
