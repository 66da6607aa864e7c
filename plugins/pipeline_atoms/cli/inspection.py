"""`pipeline-core inspect`: contents of raw files, before anything is imported."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline_atoms.cli.readers import format_units
from pipeline_atoms.readers import Reader
from pipeline_atoms.readers.frame_checks import LABELS
from pipeline_core.stages.builtin import load_registry
from pipeline_core.status.output import align

if TYPE_CHECKING:
    from pipeline_atoms.readers.describe import Description

Files = Annotated[
    list[Path], typer.Argument(help="Raw files, or folders of systems of DeePMD-kit.")
]
ReaderName = Annotated[
    str | None, typer.Option("--reader", help="Format; by default from the ending of the name.")
]


def inspect(files: Files, reader: ReaderName = None) -> None:
    """Show labels, their names and ranges, and elements in the first frames of raw files."""
    from pipeline_atoms.readers.describe import describe

    for file in expand_folders(files):
        format_of_file = choose_reader(file, reader)
        typer.echo(format_report(file, format_of_file, describe(file, format_of_file)) + "\n")


def expand_folders(paths: Sequence[Path]) -> list[Path]:
    """Return raw files, with folders replaced by their files of folder-based formats.

    Raises:
        ValueError: A path does not exist, or a folder contains no such file.
    """
    readers = load_registry().collect("readers")
    endings = [suffix for one in readers if one.beside for suffix in one.suffixes]
    files: list[Path] = []
    for path in paths:
        found = [path] if path.is_file() else _search(path, endings)
        if not found:
            raise ValueError(
                f"{path}: is a folder without {' or '.join(endings)}; name the raw files in it, "
                f"such as {path}/*.xyz. `pipeline-core readers` lists the formats; a plugin brings "
                "others by the hook `readers`"
                if path.is_dir()
                else f"{path}: no such file"
            )
        files += found
    return files


def _search(folder: Path, endings: Sequence[str]) -> list[Path]:
    return sorted({file for ending in endings for file in folder.rglob(f"*{ending}")})


def choose_reader(file: Path, name: str | None) -> Reader:
    """Return the format called `name`, or the one that the ending of a file suggests.

    Raises:
        ValueError: There is no such format, or several match.
    """
    from pipeline_atoms.readers.catalogue import guess_reader

    by_name: dict[str, Reader] = {r.name: r for r in load_registry().collect("readers")}
    if name is None:
        return guess_reader(file, by_name.values())
    if name not in by_name:
        raise ValueError(f"no reader {name!r}, only {', '.join(sorted(by_name))}")
    return by_name[name]


def format_report(file: Path, reader: Reader, description: Description) -> str:
    """Format the description of a file as text."""
    from ase.data import chemical_symbols

    smallest, largest = description.n_atoms
    bad = [f"{count} of them bad: {reason}" for reason, count in description.bad.items()]
    elements = " ".join(chemical_symbols[z] for z in description.elements)
    facts = [
        ("format", reader.name),
        ("units", format_units(reader.units)),
        (
            "frames looked at",
            "; ".join([str(description.n_frames + sum(description.bad.values())), *bad]),
        ),
        ("atoms a frame", str(smallest) if smallest == largest else f"{smallest} to {largest}"),
        ("elements", elements),
    ]
    candidates = suggest_names(description)
    for label in LABELS:
        names = candidates[label]
        facts.append((label, " or ".join(names) if names else "not found"))
    values = [
        (name, value.shape, f"{value.n_frames}", f"{value.minimum:.6g}", f"{value.maximum:.6g}")
        for name, value in description.values.items()
    ]
    table = align([("value", "shape", "frames", "smallest", "largest"), *values])
    return f"{file}\n{_indent(align(facts))}\n{_indent(table)}"


def suggest_names(description: Description) -> dict[str, list[str]]:
    """Return candidates for the name of each label in a file, the likeliest first.

    A label's own name comes before names that contain it, and a reference ("REF_energy",
    "dft_forces") before others; a virial is not a stress.
    """
    return {
        label: sorted(
            (
                n
                for n in description.values
                if label.rstrip("s") in n.lower() and _has_shape(label, description, n)
            ),
            key=lambda name: (name.lower() != label, not _is_reference(name), name),
        )
        for label in LABELS
    }


def _has_shape(label: str, description: Description, name: str) -> bool:
    shapes = {
        "energy": ("()",),
        "forces": ("(n, 3)", f"({description.n_atoms[0]}, 3)"),
        "stress": ("(6)", "(9)", "(3, 3)"),
        "magmoms": ("(n)", f"({description.n_atoms[0]})"),
    }
    return description.values[name].shape in shapes[label]


def _is_reference(name: str) -> bool:
    return any(word in name.lower() for word in ("ref", "dft", "true", "target"))


def _indent(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


COMMANDS = {"inspect": inspect}
