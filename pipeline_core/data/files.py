"""Raw files that may be compressed: opening them, and finding files beside them."""

import bz2
import gzip
import io
import lzma
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO, Final, TextIO, cast

_OPENERS: Final[dict[str, Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_BUFFER: Final = 1 << 20
_EXPANSION: Final = 200
_CHECKED_FROM: Final = 1 << 23
"""Bytes; no data of this length expand as much as _EXPANSION"""
_DECIMALS: Final = re.compile(r"[-+]?\d+\.(\d+)((?:[eEdD][-+]?\d+)?)")


def open_bytes(path: Path) -> BinaryIO:
    """Open a file for reading bytes, decompressing it if its name ends in .gz, .bz2 or .xz.

    A name that ends in .tgz is a compressed archive.
    """
    opener = gzip.open if path.suffix == ".tgz" else _OPENERS.get(path.suffix)
    if opener is None:
        return cast("BinaryIO", io.BufferedReader(path.open("rb", buffering=0), _BUFFER))
    return cast("BinaryIO", io.BufferedReader(_Expanding(path, opener), _BUFFER))


class _Expanding(io.RawIOBase):
    """The content of a compressed file, guarded against files made to fill memory or time."""

    def __init__(self, path: Path, opener: Any) -> None:
        self._file = opener(path, "rb")
        self._most = max(_CHECKED_FROM, _EXPANSION * path.stat().st_size)
        self._n_read = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        n: int = self._file.readinto(buffer)
        self._n_read += n
        if self._n_read > self._most:
            raise ValueError(
                f"expands to more than {_EXPANSION} times its size, which no data do; decompress "
                "it by hand if it is sound"
            )
        return n

    def close(self) -> None:
        self._file.close()
        super().close()


def open_text(path: Path) -> TextIO:
    """Open a file for reading lines; bytes that are not UTF-8 are replaced: labels are ASCII.

    A byte order mark, which editors of Windows put first, is skipped.
    """
    return io.TextIOWrapper(open_bytes(path), encoding="utf-8-sig", errors="replace")


def strip_compression(path: Path) -> str:
    """Return the name of a file without the ending of its compression."""
    return path.stem if path.suffix in _OPENERS else path.name


def find_compressed(path: Path) -> Path | None:
    """Return `path`, or its compressed form, whichever exists."""
    candidates = [path, *(path.with_name(path.name + suffix) for suffix in _OPENERS)]
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def explain_cut(last: str, others: Iterable[str]) -> str | None:
    """Return the reason why the last number may be cut in a file without a final end of line.

    Only a number with as many decimals as all its neighbours is certainly whole.

    Args:
        last: The number.
        others: Its neighbours, in the same column and in the same row.

    Returns:
        The reason and the cure, or None if the number is whole.
    """
    formats = {_find_format(text) for text in (last, *others)}
    if len(formats) == 1 and None not in formats:
        return None
    return (
        f"truncated: the file ends without an end of line, perhaps within its last number {last}; "
        "if it is whole, end its last line (echo >> FILE)"
    )


def _find_format(text: str) -> tuple[int, int] | None:
    """Return the number of decimals and of characters of the exponent."""
    match = _DECIMALS.fullmatch(text)
    return (len(match[1]), len(match[2])) if match else None
