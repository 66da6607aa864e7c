"""Built-in formats, and the common function to open a file of any format."""

import lzma
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from pipeline_atoms.readers import (
    BadFrame,
    Frame,
    Reader,
    ase,
    cp2k,
    deepmd,
    extxyz,
    fitsnap,
    mptrj,
    vasp,
)
from pipeline_atoms.readers.frame_checks import LABELS, check_frame

READERS: Final[list[Reader]] = [
    module.READER for module in (extxyz, ase, vasp, cp2k, mptrj, fitsnap, deepmd)
]
"""Built-in formats; their dependencies are imported when they read."""


def guess_reader(path: Path, readers: Iterable[Reader]) -> Reader:
    """Return the format that the ending of a file name suggests; the longest ending wins.

    Raises:
        ValueError: No format, or more than one, claims the ending.
    """
    readers = list(readers)
    claims = {
        one.name: max((len(s) for s in one.suffixes if path.name.endswith(s)), default=0)
        for one in readers
    }
    longest = max(claims.values(), default=0)
    matching = [reader for reader in readers if longest and claims[reader.name] == longest]
    if len(matching) == 1:
        return matching[0]
    names = ", ".join(sorted(reader.name for reader in matching or readers))
    problem = "several formats have this ending" if matching else "no format has this ending"
    raise ValueError(
        f"{path}: {problem}; name the reader (--reader, or `reader` in the dataset file), one of "
        f"{names}, or install a plugin that brings one for it (hook `readers`)"
    )


def open_frames(path: Path, reader: Reader, keys: Mapping[str, str]) -> Iterator[Frame | BadFrame]:
    """Read a file, and check every frame.

    Args:
        path: The file.
        reader: Its format.
        keys: Field names to the names of labels in the file; empty for the format's own names.

    Returns:
        The frames, read lazily. A frame with NaN, infinity, an array of a wrong shape or a periodic
        cell without volume is bad, and so is the last frame of a truncated file.

    Raises:
        ValueError: The file is missing, unreadable or empty, its compression is damaged, or the
            keys do not fit the format.
    """
    _check_keys(path, reader, keys)
    if not path.is_file():
        problem = (
            "is a folder; name the files in it" if path.is_dir() else "no such file; check the path"
        )
        raise ValueError(f"{path}: {problem} (relative paths count from the dataset file)")
    return _guard(path, reader, keys)


def _check_keys(path: Path, reader: Reader, keys: Mapping[str, str]) -> None:
    if keys and not reader.keys:
        raise ValueError(f"{path}: format {reader.name!r} names its labels itself; remove `keys`")
    unknown = sorted(keys.keys() - set(LABELS))
    if unknown:
        raise ValueError(
            f"{path}: keys: {', '.join(unknown)} unknown; labels are {', '.join(LABELS)}"
        )
    if "virial" in keys.get("stress", "").lower():
        raise ValueError(
            f"{path}: {keys['stress']!r} is a virial, not a stress; write "
            "stress = -virial / volume into the file (with ASE: atoms.info['stress'] = "
            "-virial / atoms.get_volume()) and name that in `keys`"
        )


def _guard(path: Path, reader: Reader, keys: Mapping[str, str]) -> Iterator[Frame | BadFrame]:
    n_frames = 0
    try:
        for frame in reader.read(path, keys):
            yield check_frame(frame) if isinstance(frame, Frame) else frame
            n_frames += 1
    except EOFError:
        yield BadFrame(n_frames, "truncated: the file ends within this frame")
        n_frames += 1
    except (OSError, zlib.error, lzma.LZMAError) as error:
        problem = getattr(error, "strerror", None) or error
        raise ValueError(
            f"{path}: cannot be read beyond frame {n_frames} ({problem}); check its permissions, "
            "test a compressed file with `gzip -t` or its like, or fetch it again"
        ) from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    if n_frames == 0:
        raise ValueError(
            f"{path}: holds no frames of format {reader.name!r}; check that it is complete, "
            "or name another format (--reader, or `reader` in the dataset file)"
        )
