"""Parallel part of an import: reading, checking and converting of single frames in shards.

The files of a source are divided into shards of some hundred kilobytes. One process prepares a
shard, and results are used in the order of the files: an import is the same for any number of
processes. Large files are read by the main process, and checked by worker processes.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from numpy.typing import NDArray

from pipeline_atoms.importing.columns import count_elements, format_formula, hash_frame
from pipeline_atoms.importing.energy_corrections import compute_mp2020_correction
from pipeline_atoms.importing.frames import check_frame, make_sample
from pipeline_atoms.importing.groups import name_group
from pipeline_atoms.importing.sources import RawSource
from pipeline_atoms.importing.tiling import count_copies, tile_sample
from pipeline_atoms.readers import BadFrame, Frame
from pipeline_atoms.readers.catalogue import open_frames
from pipeline_core.data.files import strip_compression

Item = TypeVar("Item")
Arrays = Mapping[str, NDArray[Any]]
Found = Frame | BadFrame | ValueError
"""A frame, a bad frame or an error found in a file; nothing follows an error."""

_SHARD: Final = 1 << 19
"""Size of small files that are read together, bytes."""
_LARGE: Final = 1 << 23
"""Size from which on the main process reads a file, since results wait in memory, bytes."""
_EXPANSION: Final = 4  # estimated size ratio of a decompressed file
_ATOMS: Final = 1 << 13
"""Number of atoms in frames of a large file that are checked together."""


class PreparedFrame(NamedTuple):
    """A good frame, with all data derived from it alone.

    Attributes:
        file: Name of its file.
        number: Number of the frame in the file.
        labels: Names of its labels.
        sample: Arrays of the sample, without group and source.
        cell: The frame before copies are made and the energy is corrected.
        composition: Composition of the sample, see `count_elements`.
        group: Name of its group.
        n_copies: Number of copies of the frame in the sample.
        content: Hash of the content, see `hash_frame`.
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
        labels: Labels of the samples.
        missing: Labels to leave out, even if a frame has them.
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
        labels: Labels of the samples.
        missing: Labels to leave out.
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
    """Estimate the total size of the files of sources, bytes."""
    return sum(
        _estimate_size(path, one.beside[file])
        for one in sources
        for file, path in one.files.items()
    )


def _estimate_size(path: Path, beside: Mapping[str, Path]) -> int:
    """Estimate the decompressed size of a file, and of files read with it, bytes.

    0 if the file does not exist.
    """
    if not path.is_file():
        return 0
    size = path.stat().st_size
    whole = size if strip_compression(path) == path.name else _EXPANSION * size
    return whole + sum(one.stat().st_size for one in beside.values())


def _read(path: Path, source: RawSource) -> Iterator[Frame | BadFrame]:
    yield from open_frames(path, source.reader, source.keys)


def _end_with_error(items: Iterable[Item]) -> Iterator[Item | ValueError]:
    """Yield an error that ends an iteration as its last item, to be raised later in order."""
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
