"""Finding the raw files that a dataset file names by patterns."""

from __future__ import annotations

import glob
from pathlib import Path

from pipeline_core.config.yaml_files import line_of


def matched(dataset: Path, key: str, pattern: str) -> dict[str, Path]:
    """Return the files that match a pattern of a dataset file.

    Args:
        dataset: The dataset file; the pattern is relative to its folder, and may lead out of it.
        key: Where the pattern stands in the file, such as "sources.0.path".
        pattern: With wildcards; ** crosses folders.

    Returns:
        Name relative to the dataset file to path, sorted by name.

    Raises:
        ValueError: No file matches.
    """
    folder = dataset.parent
    # Path.glob refuses absolute patterns and those that lead upwards.
    names = glob.glob(pattern, root_dir=folder, recursive=True)  # noqa: PTH207
    files = {name: folder / name for name in sorted(names) if (folder / name).is_file()}
    if not files:
        line = line_of(dataset, key.split("."))
        raise ValueError(
            f"{dataset}:{line}: {key}: no file matches {pattern!r} in {folder.resolve()}; "
            "correct the path, or fetch the data first"
        )
    return files
