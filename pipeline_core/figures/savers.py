"""Savers that write the same bytes for the same figure, so that a figure is checked by its hash.

By default matplotlib writes the date into SVG and PDF, and names the clip paths of an SVG at random
unless it has a salt (`style.apply_style` sets one).
"""

import csv
from collections.abc import Iterable, Sequence
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any, Final

from matplotlib.figure import Figure
from PIL import Image

from pipeline_core.artifacts import store

_OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "png": {"dpi": 220},  # fine enough to be enlarged
    "svg": {"metadata": {"Date": None}},
    "pdf": {"metadata": {"CreationDate": None}},
}


def settle_layout(drawing: Figure) -> None:
    """Fix the layout of a figure, so that no format depends on those saved before it.

    While a figure has a layout engine, even the one called "none", each file of it is drawn twice.
    """
    engine = drawing.get_layout_engine()
    if engine is not None:
        engine.execute(drawing)
        drawing.set_layout_engine(None)


def encode_image(drawing: Figure, kind: str) -> bytes:
    """Return a figure as the bytes of a file.

    Args:
        drawing: The figure.
        kind: "png", "svg" or "pdf".
    """
    buffer = BytesIO()
    drawing.savefig(buffer, format=kind, **_OPTIONS[kind])
    return buffer.getvalue()


def encode_pictures(drawing: Figure, kinds: Sequence[str]) -> dict[str, bytes]:
    """Return a figure as the bytes of a file of each kind; "webp" has the pixels of "png"."""
    settle_layout(drawing)
    pictures = {kind: encode_image(drawing, kind) for kind in kinds if kind != "webp"}
    if "webp" in kinds:
        png = pictures.get("png") or encode_image(drawing, "png")
        pictures["webp"] = _convert_to_webp(png)
    return pictures


def _convert_to_webp(png: bytes) -> bytes:
    """Return a picture as the report embeds it, lossless in fewer bytes."""
    buffer = BytesIO()
    # The quality is the effort, in per cent.
    Image.open(BytesIO(png)).save(buffer, "webp", lossless=True, quality=20)
    return buffer.getvalue()


def encode_table(rows: Iterable[Sequence[object]]) -> bytes:
    """Return rows as CSV; numbers keep all digits, None is an empty cell."""
    buffer = StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    return buffer.getvalue().encode()


def write(path: Path, content: bytes) -> None:
    """Write a file atomically.

    Raises:
        ValueError: The folder cannot be written.
    """
    with store.write_atomic(path) as temporary:
        temporary.write_bytes(content)
