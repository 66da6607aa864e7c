"""Raw files that may be compressed: opening them, and finding what lies beside them."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
from pathlib import Path
from typing import Any, BinaryIO, Final, TextIO, cast

_OPENERS: Final[dict[str, Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_BUFFER: Final = 1 << 20


def open_bytes(path: Path) -> BinaryIO:
    """Open a file for reading bytes, decompressing it if its name ends in .gz, .bz2 or .xz."""
    raw = _OPENERS.get(path.suffix, open)(path, "rb")
    return cast("BinaryIO", io.BufferedReader(raw, _BUFFER))


def open_text(path: Path) -> TextIO:
    """Open a file for reading lines; bytes that are not UTF-8 are replaced: labels are ASCII."""
    return io.TextIOWrapper(open_bytes(path), encoding="utf-8", errors="replace")


def strip_compression(path: Path) -> str:
    """Return the name of a file without the ending of its compression."""
    return path.stem if path.suffix in _OPENERS else path.name


def find_compressed(path: Path) -> Path | None:
    """Return `path`, or its compressed form, whichever exists."""
    candidates = [path, *(path.with_name(path.name + suffix) for suffix in _OPENERS)]
    return next((candidate for candidate in candidates if candidate.is_file()), None)
