"""What of an import concerns one frame alone: reading, checking, converting; by any process.

The files of a source are divided into shards of some hundred kilobytes. One process prepares a
shard, and what comes of it is taken in the order of the files: an import is the same on any number
of processes. Large files are read by the process that takes, and checked by others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from numpy.typing import NDArray

from pipeline_atoms.importing.energy_corrections import compute_mp2020_correction
from pipeline_atoms.importing.frames import check_frame, make_sample
from pipeline_atoms.importing.groups import name_group
from pipeline_atoms.importing.sources import RawSource
from pipeline_atoms.importing.tiling import count_copies, tile_sample
from pipeline_atoms.readers import BadFrame, Frame
from pipeline_atoms.readers.catalogue import open_frames
from pipeline_core.data.columns import count_elements, format_formula
from pipeline_core.data.duplicates import hash_frame
from pipeline_core.data.files import strip_compression

Item = TypeVar("Item")
Arrays = Mapping[str, NDArray[Any]]
Found = Frame | BadFrame | ValueError
"""What is found in a file in the place of a frame; nothing follows an error."""

_SHARD: Final = 1 << 19
"""Bytes of files that are read together."""
_LARGE: Final = 1 << 23
"""Bytes from which on a file is read where its frames are taken: results wait in memory."""
_EXPANSION: Final = 4  # of a compressed file
_ATOMS: Final = 1 << 13
"""Atoms of the frames of a large file that are checked together."""


class PreparedFrame(NamedTuple):
    """A good frame, with all that is known of it alone.

    Attributes:
        file: Name of its file.
        number: Its place in the file.
        labels: Those that it has.
        sample: What is written, without group and source.
        cell: The frame before copies of it are made and its energy is corrected.
        composition: Of the sample, as `count_elements` returns it.
        group: Name of its group.
        n_copies: How often the sample repeats the frame.
        content: As `hash_frame` returns it.
    """

    file: str
    number: int
    labels: Sequence[str]
    sample: Arrays
    cell: Arrays
    composition: bytes
    group: str
    n_copies: int
    content: tuple[int, int]


class RefusedFrame(NamedTuple):
    """A bad frame and the name of its file."""

    file: str
    frame: BadFrame


Outcome = PreparedFrame | RefusedFrame | ValueError


@dataclass(frozen=True)
class Shard:
    """Some files of a source, or some frames of one.

    Attributes:
        source: The source, with these files alone.
        labels: Labels that samples keep.
        missing: Labels that samples are to lack, whatever a frame has.
        frames: The frames of a single file, if they have been read.
    """

    source: RawSource
    labels: Sequence[str]
    missing: Sequence[str]
    frames: Sequence[Found] | None = None

    def prepare(self) -> list[Outcome]:
        """Read, check and convert the frames; an error comes last."""
        return list(_end_with_error(self._prepare_frames()))

    def _prepare_frames(self) -> Iterator[Outcome]:
        source = self.source
        for file, path in source.files.items():
            frames = _read(path, source) if self.frames is None else self.frames
            for frame in frames:
                if isinstance(frame, ValueError):
                    raise frame
                good = check_frame(frame, source) if isinstance(frame, Frame) else frame
                yield (
                    RefusedFrame(file, good)
                    if isinstance(good, BadFrame)
                    else self._prepare(file, good)
                )

    def _prepare(self, file: str, frame: Frame) -> PreparedFrame:
        source = self.source
        cell = make_sample(frame, self.labels, source.factors, self.missing)
        corrected = cell
        if "energy" in cell and source.options.energy_corrections == "mp2020":
            corrected = cell | {"energy": cell["energy"] + compute_mp2020_correction(cell)}
        try:
            copies = count_copies(source.options, corrected)
            sample = tile_sample(corrected, copies)
        except ValueError as error:
            raise ValueError(f"{source.name}: {file}:{frame.index}: {error}") from None
        composition = count_elements(sample["atomic_numbers"])
        return PreparedFrame(
            file,
            frame.index,
            [name for name in self.labels if name in frame.labels],
            sample,
            cell,
            composition,
            name_group(source, file, frame, format_formula(composition)),
            math.prod(copies),
            hash_frame(corrected),
        )


def list_shards(
    source: RawSource, labels: Sequence[str], missing: Sequence[str]
) -> Iterator[Shard]:
    """Divide a source into shards.

    Args:
        source: The source.
        labels: Labels that samples keep.
        missing: Labels that samples are to lack.
    """
    whole = Shard(replace(source, files={}, links={}), labels, missing)
    files: dict[str, Path] = {}
    n_bytes = 0
    for file, path in source.files.items():
        size = _estimate_size(path, source.beside[file])
        if files and n_bytes + size > _SHARD:
            yield _take(whole, files)
            files, n_bytes = {}, 0
        if size > _LARGE:
            for frames in _split_frames(_end_with_error(_read(path, source))):
                yield replace(_take(whole, {file: path}), frames=frames)
        else:
            files[file] = path
            n_bytes += size
    if files:
        yield _take(whole, files)


def _take(shard: Shard, files: Mapping[str, Path]) -> Shard:
    return replace(shard, source=replace(shard.source, files=dict(files)))


def count_bytes(sources: Iterable[RawSource]) -> int:
    """Return how many bytes the files of sources have, about."""
    return sum(
        _estimate_size(path, one.beside[file])
        for one in sources
        for file, path in one.files.items()
    )


def _estimate_size(path: Path, beside: Mapping[str, Path]) -> int:
    """Return the bytes of a file, and of those read with it, when it is decompressed.

    0 if there is none.
    """
    if not path.is_file():
        return 0
    size = path.stat().st_size
    whole = size if strip_compression(path) == path.name else _EXPANSION * size
    return whole + sum(one.stat().st_size for one in beside.values())


def _read(path: Path, source: RawSource) -> Iterator[Frame | BadFrame]:
    yield from open_frames(path, source.reader, source.keys)


def _end_with_error(items: Iterable[Item]) -> Iterator[Item | ValueError]:
    """Yield the error that ends an iteration as its last item: it is raised when its turn comes."""
    try:
        yield from items
    except ValueError as error:
        yield error


def _split_frames(frames: Iterable[Found]) -> Iterator[list[Found]]:
    """Divide the frames of a file into lists of some thousand atoms."""
    block: list[Found] = []
    n_atoms = 0
    for frame in frames:
        block.append(frame)
        n_atoms += len(frame.atomic_numbers) if isinstance(frame, Frame) else 1
        if n_atoms >= _ATOMS:
            yield block
            block, n_atoms = [], 0
    if block:
        yield block
