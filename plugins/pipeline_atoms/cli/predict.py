"""`pipeline-core predict`: predictions of a trained model for structures in files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from pipeline_atoms.cli.inspection import ReaderName, choose_reader
from pipeline_atoms.readers import Reader
from pipeline_core.cli import options
from pipeline_core.cli.models import ModelPath, find_model
from pipeline_core.stages.builtin import load_registry
from pipeline_core.status.output import align, count

if TYPE_CHECKING:
    from pipeline_atoms.calculators.predictions import FrameSummary

_SUFFIXES: Final = (".xyz", ".extxyz")
_SHOWN: Final = 20
"""Number of frames in the table."""

_CONSTANTS: Final = (
    "Energies of another method, program or pseudopotential differ by a constant of each element, "
    "which is not an error of the model. Forces have no such constants."
)

StructureFiles = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE",
        help="Structures, all frames: a format of `pipeline-core readers`, or any that ASE reads.",
    ),
]
Output = Annotated[Path, typer.Option("--output", "-o", help="Extended XYZ to write.")]
Keys = Annotated[
    list[str] | None,
    typer.Option(
        "--key",
        metavar="LABEL=NAME",
        help="Name of a label in the files to compare with, such as energy=REF_energy; may be "
        "given more than once. Default: energy, forces, stress and magmoms.",
    ),
]
Head = Annotated[
    str | None,
    typer.Option(help="Head to predict with, such as a level of theory, if there are several."),
]


def predict(
    model: ModelPath,
    files: StructureFiles,
    output: Output = Path("predictions.xyz"),
    reader: ReaderName = None,
    key: Keys = None,
    head: Head = None,
    device: options.Device = "auto",
    as_json: options.Json = False,
) -> None:
    """Predict energy, forces, stress and magnetic moments of structures, and write them to a file.

    Errors are shown against labels in the files, if there are any. The folder of the first member
    of a committee gives its mean, and half widths of 95 % intervals of energies and forces.
    """
    path, keys = find_model(model), parse_keys(key or [])
    readers = {file: _choose_reader(file, reader) for file in files}
    _check_output(output, files)
    if keys:
        _require_labels(readers, keys)

    from pipeline_atoms.calculators.committee import is_committee, load_committee
    from pipeline_atoms.calculators.loading import load_calculator
    from pipeline_atoms.calculators.predictions import predict_files
    from pipeline_core.distributed.ranks import connect_ranks

    with connect_ranks(device, output.parent) as ranks:
        if not ranks.is_rank_zero:  # structures are calculated one by one, on rank 0 alone
            return
        if model.is_dir() and is_committee(model):
            calculator = load_committee(model, str(ranks.device), load_registry(), head)
        else:
            calculator = load_calculator(path, str(ranks.device), head=head)
        frames, errors = predict_files(readers, keys, calculator, output)
    if as_json:
        paths = {"model": str(path), "output": str(output)}
        content = {**paths, "frames": [asdict(one) for one in frames], "errors": errors}
        typer.echo(json.dumps(content))
    else:
        typer.echo("\n\n".join([format_frames(frames), *format_errors(errors)]))
        typer.echo(f"\nwrote {output}: {count(len(frames), 'frame')}")


def parse_keys(words: Sequence[str]) -> dict[str, str]:
    """Parse words such as "energy=REF_energy" into a mapping of label to name.

    Raises:
        ValueError: A word has no "=" or nothing on one side of it, or a label is given twice.
    """
    keys: dict[str, str] = {}
    for word in words:
        label, _, name = word.partition("=")
        if not label or not name:
            raise ValueError(f"--key {word}: expected LABEL=NAME, such as energy=REF_energy")
        if label in keys:
            raise ValueError(f"--key {word}: {label} is given twice; leave one out")
        keys[label] = name
    return keys


def _choose_reader(file: Path, name: str | None) -> Reader:
    """Return the format of a file by its ending; ASE reads files with other endings."""
    if not file.is_file():
        problem = "is a folder; name a file in it" if file.is_dir() else "no such file"
        raise ValueError(f"{file}: {problem}")
    endings = [s for one in load_registry().collect("readers") for s in one.suffixes]
    is_known = any(file.name.endswith(ending) for ending in endings)
    return choose_reader(file, name if name or is_known else "ase")


def _check_output(output: Path, files: Sequence[Path]) -> None:
    if output.suffix not in _SUFFIXES:
        raise ValueError(
            f"--output {output}: the output is extended XYZ; its name must end in "
            f"{' or '.join(_SUFFIXES)}"
        )
    if output.resolve() in [file.resolve() for file in files]:
        raise ValueError(f"--output {output}: is an input file; choose another name")


def _require_labels(readers: Mapping[Path, Reader], keys: Mapping[str, str]) -> None:
    from pipeline_atoms.readers.catalogue import open_frames
    from pipeline_atoms.readers.describe import describe, explain_missing_label

    for file, reader in readers.items():
        open_frames(file, reader, keys)  # refuses keys that do not fit the format
        description = describe(file, reader)
        for label, name in keys.items():
            if name not in description.values:
                raise ValueError(f"{file}: {explain_missing_label(description, label, name)}")


def format_frames(frames: Sequence[FrameSummary]) -> str:
    """Format a table of the first frames, a line each, with their files if there are several."""
    several = len({one.file for one in frames}) > 1
    is_single = all(one.force_uncertainty is None for one in frames)
    rows = [
        (
            *([one.file] if several else []),
            str(one.frame),
            one.formula,
            str(one.n_atoms),
            _format_energy(one),
            "-" if one.largest_force is None else f"{one.largest_force:.4f}",
            *([] if one.force_uncertainty is None else [f"{one.force_uncertainty:.4f}"]),
        )
        for one in frames[:_SHOWN]
    ]
    header = (
        *(["file"] if several else []),
        "frame",
        "formula",
        "atoms",
        "energy (eV/atom)",
        "largest force (eV/Å)",
        *([] if is_single else ["widest ± of a force (eV/Å)"]),
    )
    more = [f"... and {len(frames) - _SHOWN} more"] if len(frames) > _SHOWN else []
    return "\n".join([align([header, *rows]), *more])


def _format_energy(frame: FrameSummary) -> str:
    if frame.energy_per_atom is None:
        return "-"
    half = frame.energy_uncertainty
    return f"{frame.energy_per_atom:.6f}" + ("" if half is None else f" ± {half:.6f}")


def format_errors(errors: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Format a table of errors with a note; empty if there are no errors."""
    from pipeline_core.figures.quantities import find_quantity

    if not errors:
        return []
    rows = []
    for name, metrics in errors.items():
        quantity = find_quantity(name)
        words = [f"{quantity.error_factor * metrics['mae']:.4g} {quantity.error_unit}"]
        if "mean_difference" in metrics:
            rest, mean = (
                quantity.error_factor * metrics[key]
                for key in ("mae_without_mean", "mean_difference")
            )
            words.append(f"({rest:.4g} without the mean difference of {mean:.4g})")
        rows.append((quantity.title, " ".join(words)))
    table = f"mean absolute errors against the files\n{align(rows)}"
    return [table, _CONSTANTS] if "energy_per_atom" in errors else [table]


COMMANDS = {"predict": predict}
