"""Raw files of a dataset: finding them by pattern, and identifying them by content."""

import glob
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any

from pipeline_core.artifacts.provenance import hash_file
from pipeline_core.artifacts.seals import add_checksum, open_file, take_checksum
from pipeline_core.config.yaml_files import find_line


class MissingFilesError(ValueError):
    """No file matches a pattern: the data have not been fetched, or the pattern is wrong."""


def match_files(
    dataset: Path, key: str, pattern: str, declared: Iterable[str] = ()
) -> dict[str, Path]:
    """Return the files that match a pattern of a dataset file, each once in spite of links.

    Args:
        dataset: The dataset file; the pattern is relative to its folder, and may lead out of it.
        key: Key of the pattern in the file, such as "sources.0.path".
        pattern: Pattern with wildcards; ** crosses folders, including links.
        declared: Names of files that count as present because they can be fetched.

    Returns:
        Name relative to the dataset file to path, sorted by name.

    Raises:
        MissingFilesError: No file matches.
        ValueError: A name is not UTF-8, or a folder cannot be listed.
    """
    return drop_links(match_names(dataset, key, pattern, declared))[0]


def match_names(
    dataset: Path, key: str, pattern: str, declared: Iterable[str] = ()
) -> dict[str, Path]:
    """Return all names that match a pattern, as `match_files` does; a file may have several.

    Raises:
        MissingFilesError: No file matches.
        ValueError: A name is not UTF-8, or a folder cannot be listed.
    """
    folder = dataset.parent
    names = _expand_pattern(folder, pattern)
    _refuse_other_encodings(folder, names)
    present = {str(PurePosixPath(name)): name for name in names if (folder / name).is_file()}
    parts = PurePosixPath(pattern).parts
    absent = [n for n in declared if n not in present and _is_match(PurePosixPath(n).parts, parts)]
    files = {name: folder / name for name in sorted([*present.values(), *absent])}
    if not files:
        line = find_line(dataset, key.split("."))
        raise MissingFilesError(
            f"{dataset}:{line}: {key}: no file matches {pattern!r} in {folder.resolve()}; "
            "correct the path, or fetch the data first"
        )
    return files


def _refuse_other_encodings(folder: Path, names: Iterable[str]) -> None:
    """Check that artifacts can record the names of their files in UTF-8."""
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError:
            raise ValueError(
                f"{folder.resolve()}: the name of the file {os.fsencode(name)!r} is not UTF-8; "
                "rename it, or make the pattern narrower"
            ) from None


def drop_links(files: Mapping[str, Path]) -> tuple[dict[str, Path], dict[str, str]]:
    """Keep one name of each file: the one with the fewest folders.

    Returns:
        Kept names to paths, and the other names to the kept names of the same files.
    """
    names: dict[Path, list[str]] = {}
    for name, path in files.items():
        names.setdefault(path.resolve(), []).append(name)
    first = {real: min(some, key=lambda n: (n.count("/"), n)) for real, some in names.items()}
    kept = {name: path for name, path in files.items() if first[path.resolve()] == name}
    return kept, {n: first[p.resolve()] for n, p in files.items() if n not in kept}


def _expand_pattern(folder: Path, pattern: str) -> list[str]:
    """Return the matches of a pattern, relative to `folder`.

    Unlike `glob` it stops where a link leads back to a folder that it is in.
    """
    parts = PurePosixPath(pattern).parts
    # Path.glob refuses absolute patterns and patterns that lead upwards.
    if "**" not in parts:
        return glob.glob(pattern, root_dir=folder)  # noqa: PTH207
    depth = parts.index("**")
    head = str(PurePosixPath(*parts[:depth]))
    starts = [
        PurePosixPath(start)
        for start in (glob.glob(head, root_dir=folder) if depth else ["."])  # noqa: PTH207
        if (folder / start).is_dir()
    ]
    return [
        str(start / name)
        for start in starts
        for name in _walk_files(folder / start, PurePosixPath(), frozenset())
        if _is_match(name.parts, parts[depth:])
    ]


def _walk_files(
    folder: Path, name: PurePosixPath, above: frozenset[Path]
) -> Iterator[PurePosixPath]:
    """Yield all files below a folder, relative to it, without hidden ones and link cycles."""
    real = folder.resolve()
    if real in above:
        return
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        raise ValueError(
            f"{folder}: cannot be listed ({error.strerror}); check its permissions, or make the "
            "pattern narrower"
        ) from error
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            yield from _walk_files(folder / entry.name, name / entry.name, above | {real})
        else:
            yield name / entry.name


def _is_match(name: Sequence[str], pattern: Sequence[str]) -> bool:
    """Return True if a path matches a pattern, both in parts, as `glob` would find it."""
    if not pattern:
        return not name
    if pattern[0] == "**":
        return any(_is_match(name[start:], pattern[1:]) for start in range(len(name) + 1))
    return bool(name) and fnmatchcase(name[0], pattern[0]) and _is_match(name[1:], pattern[1:])


def hash_raw_files(files: Mapping[str, Path], memory: Path) -> dict[str, str]:
    """Return name and SHA-256 of the files that exist.

    A file is read again only if its size, times or inode have changed since the last reading: a
    copy that keeps the time of the file it replaces has another inode or change time.

    Args:
        files: Their names and paths.
        memory: JSON file that caches the hashes, if its folder can be written.

    Raises:
        ValueError: A file cannot be read.
    """
    before, hashes = _read_memory(memory), {}
    now = dict(before)
    for name, path in files.items():
        if not path.exists():
            continue
        try:
            stamp = stamp_file(path)
            entry = before.get(str(path))
            if entry is None or entry[:-1] != stamp:
                entry = [*stamp, hash_file(path)]
        except OSError as error:
            raise ValueError(f"{path}: cannot be read ({error.strerror})") from error
        now[str(path)], hashes[name] = entry, entry[-1]
    if now != before:
        _write_memory(memory, now)
    return hashes


def stamp_file(path: Path) -> list[int]:
    """Return size, times and inode of a file, at least one of which changes when the file does."""
    facts = path.stat()
    return [facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino]


def _read_memory(path: Path) -> dict[str, list[Any]]:
    try:
        with open_file(path) as file:
            files, is_checked = take_checksum(json.loads(file.read().decode("utf-8")))
    except (ValueError, AttributeError, RecursionError):
        return {}
    return files if is_checked else {}


def _write_memory(path: Path, hashes: Mapping[str, list[Any]]) -> None:
    with suppress(OSError):  # it only saves time
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        part.write_text(json.dumps(add_checksum(hashes)), encoding="utf-8")
        part.replace(path)
