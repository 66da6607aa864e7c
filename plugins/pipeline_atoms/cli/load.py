"""`pipeline-core load` and `export`: models of other programs, in both directions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml

from pipeline_core.artifacts.foreign import ForeignFormat
from pipeline_core.cli.models import ModelPath, find_model
from pipeline_core.model_info import ModelInfo
from pipeline_core.stages.builtin import load_registry
from pipeline_core.status.output import align

if TYPE_CHECKING:
    from pipeline_core.artifacts.foreign import ForeignModel

ForeignFile = Annotated[
    Path | None,
    typer.Argument(
        metavar="[FILE]",
        help="A file of another program, such as a .model of mace-torch; without it, published "
        "models are listed with their addresses.",
    ),
]
Output = Annotated[Path, typer.Option("--output", "-o", help="The model to write.")]
Heads = Annotated[
    list[str] | None,
    typer.Option(
        "--head",
        help="Head of a file with several, such as a level of theory; may be given more than once: "
        "all of them are kept, and the first one is predicted.",
    ),
]
Plugin = Annotated[str | None, typer.Option(help="The plugin, if several read such files.")]
Written = Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")]


def load(
    file: ForeignFile = None,
    output: Output = Path("model.pt"),
    head: Heads = None,
    plugin: Plugin = None,
) -> None:
    """Convert a model trained by another program into a model.pt, which every command reads.

    Nothing is downloaded, and no code in a file is executed.
    """
    if file is None:
        typer.echo("\n".join(_list_published()))
        return
    info, kind = _choose(_list_formats(plugin), file)
    if output.exists() and output.samefile(file):
        raise ValueError(f"--output {output}: is the file itself; choose another name")
    from pipeline_atoms.potential.foreign import write_foreign_model

    model = kind.read(file, head or [])
    write_foreign_model(output, file, kind, model, info)
    typer.echo("\n".join(_describe(file, kind, model)))
    typer.echo(f"\nwrote {output}")


def export(model: ModelPath, file: Written) -> None:
    """Convert a trained model into a file for another program, such as a .model of mace-torch.

    It includes energies of free atoms and the cutoff. The other program need not be installed.
    """
    path = find_model(model)
    from pipeline_atoms.calculators.potentials import load_potential, make_file_run

    run = make_file_run(path, load_registry())
    formats = [(info, kind) for info, kind in _list_formats(None) if info == run.model_info]
    if not formats:
        raise ValueError(f"{path}: no other program loads models of plugin {run.model_info.name!r}")
    _, kind = _choose(formats, file)
    if file.exists() and file.samefile(path):
        raise ValueError(f"{file}: is the model itself; choose another name")
    potential = load_potential(run)
    kind.write(potential.module.to(potential.dtype), file)
    typer.echo(f"wrote {file}, for {kind.name}")


def _list_formats(plugin: str | None) -> list[tuple[ModelInfo, ForeignFormat]]:
    registry = load_registry()
    models = registry.list_models() if plugin is None else [registry.get_model_info(plugin)]
    return [(info, kind) for info in models for kind in info.foreign]


def _choose(
    formats: Sequence[tuple[ModelInfo, ForeignFormat]], file: Path
) -> tuple[ModelInfo, ForeignFormat]:
    """Return the format that the ending of a file name indicates."""
    found = [(info, kind) for info, kind in formats if file.name.endswith(kind.ending)]
    if not found:
        endings = ", ".join(f"{kind.ending} ({kind.name})" for _, kind in formats) or "none"
        raise ValueError(f"{file}: unknown file type; supported endings: {endings}")
    if len(found) > 1:
        names = ", ".join(info.name for info, _ in found)
        raise ValueError(f"{file}: several plugins read {found[0][1].ending}: --plugin {names}")
    return found[0]


def _list_published() -> Iterator[str]:
    """Yield the published models, and instructions to get them."""
    formats = [(info, kind) for info, kind in _list_formats(None) if kind.published]
    for info, kind in formats:
        yield f"published for {kind.name}, plugin {info.name}; fetch a file yourself, then:"
        yield f"  pipeline-core load FILE{kind.ending}"
        yield ""
        header = ("name", "trained on", "licence", "address")
        rows = [(one.name, one.data, one.licence, one.address) for one in kind.published]
        yield align([header, *rows])
        hashes = [(one.name, one.git_blob) for one in kind.published if one.git_blob]
        if hashes:
            yield ""
            yield "hashes, as `git hash-object FILE` prints them; the others have no published hash"
            yield align(hashes)
    if not formats:
        yield "no installed plugin lists published models"


def _describe(file: Path, kind: ForeignFormat, model: ForeignModel) -> Iterator[str]:
    """Yield the contents of a file, and the sections of an experiment that starts from it."""
    from pipeline_core.artifacts.provenance import hash_file

    metadata = dict(model.metadata)
    elements, published = metadata["elements"], kind.identify(file)
    rows = [
        ("file", f"{file}, of {kind.name}"),
        ("SHA-256", hash_file(file)),
        ("published as", published.name if published else "unknown hash"),
        ("parameters", f"{sum(p.numel() for p in model.module.parameters()):,}"),
        ("elements", f"{len(elements)}: {', '.join(elements)}"),
    ]
    yield align(rows)
    yield ""
    yield "an experiment that starts from it has these sections:"
    yield _format_sections(model)


def _format_sections(model: ForeignModel) -> str:
    options: dict[str, Any] = dict(model.metadata["options"])
    text = yaml.safe_dump({"model": options}, sort_keys=False, default_flow_style=None, width=100)
    return text.rstrip()


COMMANDS = {"load": load, "export": export}
