"""`pipeline-core new-dataset`: a dataset file for raw files, from a look into them."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from string import digits
from typing import TYPE_CHECKING

import typer

from pipeline_atoms.cli.inspection import (
    Files,
    ReaderName,
    choose_reader,
    expand_folders,
    suggest_names,
)
from pipeline_atoms.cli.readers import format_units
from pipeline_atoms.config.datasets import Dataset
from pipeline_atoms.readers.frame_checks import LABELS
from pipeline_core.cli import options
from pipeline_core.cli.new_files import Name, write_new
from pipeline_core.cli.yaml_templates import format_scalar, format_section
from pipeline_core.project.project import check_name
from pipeline_core.status.output import count

if TYPE_CHECKING:
    from pipeline_atoms.readers import Reader
    from pipeline_atoms.readers.describe import Description


def write_dataset(
    name: Name,
    files: Files,
    reader: ReaderName = None,
    workflows: options.Workflows = options.WORKFLOWS,
) -> None:
    """Look at raw files and write a dataset file for them."""
    from pipeline_atoms.readers.describe import describe

    path = workflows / "datasets" / f"{name}.yaml"
    check_name(name, str(path))
    files = expand_folders(files)
    format_of_files = choose_reader(files[0], reader)
    description = describe(files[0], format_of_files)
    _require_frames(files[0], format_of_files, description)
    path.parent.mkdir(parents=True, exist_ok=True)  # patterns are relative to it
    write_new(path, format_dataset(name, path, files, format_of_files, description))
    options.load_project(workflows, options.RESULTS).load_dataset(name)
    typer.echo(
        f"wrote {path} after a look at {files[0]}; check its units and its split\n"
        f"next: pipeline-core data --dataset {name}"
    )


def _require_frames(path: Path, reader: Reader, description: Description) -> None:
    """Check that at least one frame of a file can be read.

    Raises:
        ValueError: No frame can be read.
    """
    if description.n_frames:
        return
    reasons = "; ".join(f"{reason} ({n})" for reason, n in description.bad.items())
    raise ValueError(
        f"{path}: no frame can be read as {reader.name!r}, of "
        f"{count(sum(description.bad.values()), 'frame')} looked at: {reasons}. Name another "
        "format with --reader (`pipeline-core readers` lists them, a plugin brings others by the "
        "hook `readers`), or repair the file"
    )


def format_dataset(
    name: str, path: Path, files: Sequence[Path], reader: Reader, description: Description
) -> str:
    """Return the content of a dataset file.

    Args:
        name: Name of the dataset.
        path: Path of the dataset file; patterns are relative to its folder.
        files: Raw files.
        reader: Their format.
        description: Contents of the first of them, at least one frame.
    """
    candidates = {label: names for label, names in suggest_names(description).items() if names}
    coverage = {label: description.values[names[0]].n_frames for label, names in candidates.items()}
    values = {
        "description": f"{name}, from {count(len(files), 'file')} of format {reader.name}",
        "labels": [label for label in LABELS if label in candidates],
        "partial": [label for label, count in coverage.items() if count < description.n_frames],
    }
    lines = [f"description: {format_scalar(values['description'])}", "sources:"]
    for pattern in find_patterns(
        [Path(os.path.relpath(f, path.parent)) for f in files], path.parent
    ):
        lines += _format_source(pattern, reader, candidates, grouped=len(files) > 1)
    rest = format_section(Dataset, values, skip=("description", "sources"))
    return "\n".join([*lines, *rest]) + "\n"


def _format_source(
    pattern: str, reader: Reader, candidates: dict[str, list[str]], *, grouped: bool
) -> list[str]:
    lines = [f"  - path: {format_scalar(pattern)}", f"    reader: {reader.name}"]
    if reader.keys:
        lines.append("    # Names of the labels in the files.")
        lines.append(f"    keys: {format_scalar({k: names[0] for k, names in candidates.items()})}")
        others = {k: names[1:] for k, names in candidates.items() if len(names) > 1}
        lines += [f"    # {k} may also be {' or '.join(n)}" for k, n in others.items()]
    lines.append(f"    # Taken to be in {format_units(reader.units)}; if they are not, say so:")
    lines.append("    # units: {energy: kcal/mol, stress: kbar, stress_sign: pressure}")
    if grouped:
        lines.append(f"    group: {'folder' if '/*/' in pattern else 'file'}")
    return lines


def find_patterns(files: Sequence[Path], folder: Path) -> list[str]:
    """Return the glob pattern that matches only these files, or else their names.

    Args:
        files: Paths relative to `folder`.
        folder: Folder that patterns are relative to.
    """
    names = [str(file) for file in files]
    if len(files) > 1 and len({len(file.parts) for file in files}) == 1:
        columns = zip(*(file.parts for file in files), strict=True)
        pattern = str(Path(*(_find_common_pattern(sorted(set(column))) for column in columns)))
        matched = glob.glob(pattern, root_dir=folder)  # noqa: PTH207 - it may lead upwards
        if sorted(matched) == sorted(names):
            return [pattern]
    return names


def _find_common_pattern(words: Sequence[str]) -> str:
    """Return the pattern for the words at the same position in several paths."""
    if len(words) == 1:
        return words[0]
    start = _find_common_start(words)
    end = _find_common_start([word[len(start) :][::-1] for word in words])[::-1]
    return f"{start.rstrip(digits)}*{end.lstrip(digits)}"


def _find_common_start(words: Sequence[str]) -> str:
    letters = takewhile(lambda column: len(set(column)) == 1, zip(*words, strict=False))
    return "".join(column[0] for column in letters)


COMMANDS = {"new-dataset": write_dataset}
