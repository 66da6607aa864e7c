"""Samples of the import before: frames of files that have not changed are not read again.

A large dataset keeps its samples under a second name (`DatasetRun.kept`, a hard link), since
Snakemake removes `data.h5` before it is made anew. Its provenance says which samples came from
which file, read by which code in which way. Copies of cells, corrected energies and files with bad
frames are read again: samples do not say all of them.
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

from pipeline_atoms.importing.shards import PreparedFrame, Shard, list_shards
from pipeline_atoms.importing.sources import RawSource
from pipeline_core import store
from pipeline_core.data.columns import count_elements
from pipeline_core.data.duplicates import hash_frame
from pipeline_core.provenance import read_versions
from pipeline_core.registry import find_source_files
from pipeline_core.samples import SampleFile

logger = logging.getLogger(__name__)

Places = Sequence[int]
"""The first sample of a file, and the one behind its last."""

_MOST: Final = 4096  # samples of a shard
_NO_EFFECT: Final = {"path", "split"}  # of the options of a source on a frame
_ADDED: Final = ("group", "source", "split")


class KeptSamples:
    """What the import before has kept, and what this one will keep.

    Args:
        path: Where samples are kept; None for a dataset that is read again as fast.
        record: Provenance of this import, which gets the places of files.

    Attributes:
        n_files: Number of files whose samples have been taken from there.
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
        """Return what is kept of a source.

        Args:
            source: The source.
            labels: Labels that samples keep.
            missing: Labels that samples are to lack.
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
        known = self._files.get(key, {})
        self.n_files += len(source.files.keys() & known.keys())
        now: dict[str, Places] = {}
        self._now.append({"key": key, "files": now})
        return KeptSource(self._path, known, now)

    def replace(self, data: Path) -> None:
        """Keep the samples of this import, which have been written, in the place of others.

        Where the file system has no links nothing is kept.
        """
        if self._path is not None:
            part = store.name_part(self._path)
            with suppress(OSError):
                os.link(data, part)
                part.replace(self._path)


class KeptSource:
    """What is kept of a source, and what will be.

    Args:
        path: Where samples are kept.
        known: Places of the samples of files that have not changed.
        now: Gets the places of the samples of this import.
    """

    def __init__(
        self, path: Path | None, known: Mapping[str, Places], now: dict[str, Places]
    ) -> None:
        self._path, self._known, self._now = path, known, now
        self._bad: set[str] = set()

    def list_shards(
        self, source: RawSource, labels: Sequence[str], missing: Sequence[str], part: str
    ) -> Iterator[Shard | KeptShard]:
        """Divide the source, as `shards.list_shards` does, into files to be read and kept ones."""
        for is_known, group in groupby(source.files.items(), lambda item: item[0] in self._known):
            files = dict(group)
            if not is_known:
                yield from list_shards(replace(source, files=files), labels, missing)
                continue
            assert self._path is not None
            for begin, stop in _join(self._known[file] for file in files):
                yield KeptShard(self._path, begin, stop, labels, part)

    def note(self, file: str, place: int) -> None:
        """Note the place of a sample in the artifact."""
        if file not in self._bad:
            self._now[file] = [self._now.get(file, [place])[0], place + 1]

    def note_bad_frame(self, file: str) -> None:
        """Have a file read again by the next import."""
        self._bad.add(file)
        self._now.pop(file, None)


@dataclass(frozen=True)
class KeptShard:
    """Samples of the import before, one after the other.

    Attributes:
        path: Where they are.
        begin: The first one.
        stop: The one behind the last.
        labels: Those that they keep.
        part: Name of the dataset in a mixture, else empty.
    """

    path: Path
    begin: int
    stop: int
    labels: Sequence[str]
    part: str

    def prepare(self) -> list[PreparedFrame]:
        """Return the frames as reading their files gives them."""
        with SampleFile(self.path, "data", preload=False) as samples:
            return [self._restore(one) for one in samples.read_range(self.begin, self.stop)]

    def _restore(self, stored: dict[str, Any]) -> PreparedFrame:
        file, _, number = str(stored["source"]).rpartition(":")
        group = str(stored["group"]).removeprefix(f"{self.part}/" if self.part else "")
        # Copies: what is kept of one must not keep all that were read with it.
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
    """Return key of source to file to place, of files whose content is what it was.

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
    # Such files are of the group that their real folder is called.
    named = options.group == "folder" and any(
        PurePosixPath(file).parent == source.root for file in source.files
    )
    return copied or named or options.energy_corrections != "none"


@cache
def _hash_engine() -> str:
    digest = hashlib.sha256()
    for path in find_source_files("pipeline_core"):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _join(places: Iterable[Places]) -> Iterator[tuple[int, int]]:
    """Join the places of files that follow each other, and cut them into shards."""
    begin = stop = 0
    for first, behind in places:
        if first != stop:
            yield from _cut(begin, stop)
            begin = first
        stop = behind
    yield from _cut(begin, stop)


def _cut(begin: int, stop: int) -> Iterator[tuple[int, int]]:
    return ((n, min(n + _MOST, stop)) for n in range(begin, stop, _MOST))
