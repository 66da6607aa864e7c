"""Finding the raw files that a dataset file names by patterns, and knowing them by content."""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any

from pipeline_core.config.yaml_files import find_line
from pipeline_core.provenance import hash_file


def match_files(
    dataset: Path, key: str, pattern: str, declared: Iterable[str] = ()
) -> dict[str, Path]:
    """Return the files that match a pattern of a dataset file.

    Args:
        dataset: The dataset file; the pattern is relative to its folder, and may lead out of it.
        key: Where the pattern stands in the file, such as "sources.0.path".
        pattern: With wildcards; ** crosses folders.
        declared: Names of files that count as there, since they can be fetched.

    Returns:
        Name relative to the dataset file to path, sorted by name.

    Raises:
        ValueError: No file matches.
    """
    folder = dataset.parent
    # Path.glob refuses absolute patterns and those that lead upwards.
    names = glob.glob(pattern, root_dir=folder, recursive=True)  # noqa: PTH207
    present = {str(PurePosixPath(name)): name for name in names if (folder / name).is_file()}
    parts = PurePosixPath(pattern).parts
    absent = [n for n in declared if n not in present and _is_match(PurePosixPath(n).parts, parts)]
    files = {name: folder / name for name in sorted([*present.values(), *absent])}
    if not files:
        line = find_line(dataset, key.split("."))
        raise ValueError(
            f"{dataset}:{line}: {key}: no file matches {pattern!r} in {folder.resolve()}; "
            "correct the path, or fetch the data first"
        )
    return files


def _is_match(name: Sequence[str], pattern: Sequence[str]) -> bool:
    """Return whether a path matches a pattern, both in parts, as `glob` would find it."""
    if not pattern:
        return not name
    if pattern[0] == "**":
        return any(_is_match(name[start:], pattern[1:]) for start in range(len(name) + 1))
    return bool(name) and fnmatchcase(name[0], pattern[0]) and _is_match(name[1:], pattern[1:])


def hash_raw_files(files: Mapping[str, Path], memory: Path) -> dict[str, str]:
    """Return name and SHA-256 of the files that are there.

    A file is read again only if its size, times or inode differ from those that it had when it was
    read last: a copy that keeps the time of what it replaces has another inode or change time.

    Args:
        files: Their names and paths.
        memory: Where this is remembered, as far as the folder can be written (JSON).

    Raises:
        ValueError: A file cannot be read.
    """
    before, hashes = _read_memory(memory), {}
    now = dict(before)
    for name, path in files.items():
        if not path.exists():
            continue
        try:
            facts = path.stat()
            stamp = [facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino]
            entry = before.get(str(path))
            if entry is None or entry[:-1] != stamp:
                entry = [*stamp, hash_file(path)]
        except OSError as error:
            raise ValueError(f"{path}: cannot be read ({error.strerror})") from error
        now[str(path)], hashes[name] = entry, entry[-1]
    if now != before:
        _write_memory(memory, now)
    return hashes


def _read_memory(path: Path) -> dict[str, list[Any]]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    entries = content.items() if isinstance(content, dict) else ()
    return {name: entry for name, entry in entries if isinstance(entry, list) and len(entry) == 5}


def _write_memory(path: Path, known: Mapping[str, list[Any]]) -> None:
    with suppress(OSError):  # it only saves time
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        part.write_text(json.dumps(known), encoding="utf-8")
        part.replace(path)
