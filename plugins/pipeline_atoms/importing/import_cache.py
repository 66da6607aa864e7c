"""Import cache: samples of unchanged raw files are reused from the previous import.

A large dataset keeps its samples under a second name (`locate_kept`, a hard link), since
Snakemake removes `data.h5` before it is written again. Its provenance records the file of each
sample, the code and the options. Copies of cells, corrected energies and files with bad frames are
read again: they cannot be restored from samples.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Any, Final

import numpy as np

from pipeline_atoms.importing.columns import count_elements, hash_frame
from pipeline_atoms.importing.shards import PreparedFrame, Shard, list_shards
from pipeline_atoms.importing.sources import RawSource
from pipeline_core.artifacts import store
from pipeline_core.artifacts.provenance import read_versions
from pipeline_core.artifacts.samples import SampleFile
from pipeline_core.project.run import DatasetRun
from pipeline_core.registry import find_source_files

logger = logging.getLogger(__name__)

Places = Sequence[int]
"""The first sample of a file, and the one after its last."""

_MOST: Final = 4096  # samples of a shard
_NO_EFFECT: Final = {"path", "split"}  # options of a source without effect on a frame
_ADDED: Final = ("group", "source", "split")


def locate_kept(run: DatasetRun) -> Path:
    """Return the file of samples kept from the latest import (HDF5), which is not an output.

    The rounds of active learning share it, so that each reads only the new files.
    """
    if run.grows:
        return run.folder.with_name(f".{run.folder.name.partition('_')[0]}.kept.h5")
    return run.folder / "data.kept.h5"


class KeptSamples:
    """Samples kept from the previous import, and the record for the next one.

    Args:
        path: File of kept samples; None for a small dataset, which is read again.
        record: Provenance of this import; the places of files are added to it.

    Attributes:
        n_files: Number of files with reused samples.
    """

    def __init__(self, path: Path | None, record: dict[str, Any]) -> None:
        self.n_files = 0
        self._path, self._readers, self._hashes = path, record["readers"], record["inputs"]
        self._files: dict[str, dict[str, Places]] = {}
        self._now: list[dict[str, Any]] = []
        if path is None:
            return
        record["sources"] = self._now
        try:
            self._files = _find_unchanged(path, record["inputs"]) if path.exists() else {}
        except ValueError as error:
            logger.warning("%s; all raw files are read", error)

    def open(
        self, source: RawSource, labels: Sequence[str], missing: Sequence[str], part: str
    ) -> KeptSource:
        """Return the kept samples of a source.

        Args:
            source: The source.
            labels: Labels of the samples.
            missing: Labels to leave out.
            part: Name of the dataset in a mixture, else empty.
        """
        if self._path is None or _is_transformed(source):
            return KeptSource(self._path, {}, {})
        facts = {
            "options": source.options.model_dump(mode="json", exclude=_NO_EFFECT),
            "reader": [source.reader.name, self._readers.get(source.reader.name)],
            "beside": [self._hashes.get(n) for files in source.beside.values() for n in files],
            "names": [part, str(source.root), *labels, "-", *missing],
            "code": [_hash_engine(), read_versions()],
        }
        key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
        previous = self._files.get(key, {})
        self.n_files += len(source.files.keys() & previous.keys())
        now: dict[str, Places] = {}
        self._now.append({"key": key, "files": now})
        return KeptSource(self._path, previous, now)

    def replace(self, data: Path) -> None:
        """Keep the written samples of this import in place of the previous ones.

        Without hard links in the file system nothing is kept.
        """
        if self._path is not None:
            part = store.name_part(self._path)
            with suppress(OSError):
                os.link(data, part)
                part.replace(self._path)


class KeptSource:
    """Kept samples of one source, and the record for the next import.

    Args:
        path: File of kept samples.
        previous: Places of the samples of unchanged files.
        now: Receives the places of the samples of this import.
    """

    def __init__(
        self, path: Path | None, previous: Mapping[str, Places], now: dict[str, Places]
    ) -> None:
        self._path, self._previous, self._now = path, previous, now
        self._bad: set[str] = set()

    def list_shards(
        self, source: RawSource, labels: Sequence[str], missing: Sequence[str], part: str
    ) -> Iterator[Shard | KeptShard]:
        """Divide the source into shards of files to read, and shards of kept samples."""
        for is_kept, group in groupby(source.files.items(), lambda item: item[0] in self._previous):
            files = dict(group)
            if not is_kept:
                yield from list_shards(replace(source, files=files), labels, missing)
                continue
            assert self._path is not None
            for begin, stop in _join(self._previous[file] for file in files):
                yield KeptShard(self._path, begin, stop, labels, part)

    def note(self, file: str, place: int) -> None:
        """Record the place of a sample in the artifact."""
        if file not in self._bad:
            self._now[file] = [self._now.get(file, [place])[0], place + 1]

    def note_bad_frame(self, file: str) -> None:
        """Record that the next import must read a file again."""
        self._bad.add(file)
        self._now.pop(file, None)


@dataclass(frozen=True)
class KeptShard:
    """Consecutive samples of the previous import.

    Attributes:
        path: File of the samples.
        begin: First sample.
        stop: Sample after the last one.
        labels: Labels of the samples.
        part: Name of the dataset in a mixture, else empty.
    """

    path: Path
    begin: int
    stop: int
    labels: Sequence[str]
    part: str

    def prepare(self) -> list[PreparedFrame]:
        """Return the frames as if their files were read."""
        with SampleFile(self.path, "data", preload=False) as samples:
            return [self._restore(one) for one in samples.read_range(self.begin, self.stop)]

    def _restore(self, stored: dict[str, Any]) -> PreparedFrame:
        file, _, number = str(stored["source"]).rpartition(":")
        group = str(stored["group"]).removeprefix(f"{self.part}/" if self.part else "")
        # Copies: a view would keep the whole block in memory.
        sample = {name: rows.copy() for name, rows in stored.items() if name not in _ADDED}
        return PreparedFrame(
            file,
            int(number),
            [name for name in self.labels if not np.isnan(sample[name]).any()],
            sample,
            sample,
            count_elements(sample["atomic_numbers"]),
            group,
            1,
            hash_frame(sample),
        )


def _find_unchanged(path: Path, hashes: Mapping[str, str]) -> dict[str, dict[str, Places]]:
    """Return key of source to file to place, for files with unchanged content.

    Raises:
        ValueError: The file is damaged.
    """
    facts = store.read_provenance(path)
    before = facts.get("inputs", {})
    files: dict[str, dict[str, Places]] = {}
    for source in facts.get("sources", ()):
        same = {n: p for n, p in source["files"].items() if hashes.get(n) == before.get(n)}
        files.setdefault(source["key"], {}).update(same)
    if any(files.values()):
        store.check(path)
    return files


def _is_transformed(source: RawSource) -> bool:
    options = source.options
    copied = options.repeat is not None or options.repeat_to is not None
    # The group of such files is the name of their real folder.
    named = options.group == "folder" and any(
        PurePosixPath(file).parent == source.root for file in source.files
    )
    return copied or named or options.energy_corrections != "none"


@cache
def _hash_engine() -> str:
    digest = hashlib.sha256()
    for package in ("pipeline_core", "pipeline_atoms"):
        for path in find_source_files(package):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _join(places: Iterable[Places]) -> Iterator[tuple[int, int]]:
    """Join the places of consecutive files, and cut them into shards."""
    begin = stop = 0
    for first, behind in places:
        if first != stop:
            yield from _cut(begin, stop)
            begin = first
        stop = behind
    yield from _cut(begin, stop)


def _cut(begin: int, stop: int) -> Iterator[tuple[int, int]]:
    return ((n, min(n + _MOST, stop)) for n in range(begin, stop, _MOST))
