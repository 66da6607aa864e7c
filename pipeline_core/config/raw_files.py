"""Finding the raw files that a dataset file names by patterns."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from pipeline_core.config.yaml_files import find_line


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
