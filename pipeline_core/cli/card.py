"""`pipeline-core card`: description of a model with its data, errors and limits."""

from pathlib import Path
from typing import Annotated

import typer

from pipeline_core.cli.models import ModelPath, find_model

Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="Markdown to write; printed by default.")
]
Copy = Annotated[
    Path | None,
    typer.Option(help="Write a copy of the model that contains the whole card, for distribution."),
]


def card(model: ModelPath, output: Output = None, copy: Copy = None) -> None:
    """Print the card of a model: data, errors, elements, limits, licence, citation, versions."""
    from pipeline_core.artifacts.store import write_atomic
    from pipeline_core.report.card import format_card, read_card

    path = find_model(model)
    if copy is not None and copy.resolve() == path.resolve():
        raise ValueError(f"--copy {copy}: is the model itself; choose another name")
    facts = read_card(path)
    text = format_card(facts)
    if output is None:
        typer.echo(text, nl=False)
    else:
        with write_atomic(output) as temporary:
            temporary.write_text(text, encoding="utf-8")
        typer.echo(f"wrote {output}")
    if copy is not None:
        from pipeline_core.training.model_file import load_archive, save_archive

        save_archive(copy, load_archive(path, "name another model"), facts)
        typer.echo(f"wrote {copy}", err=output is None)


COMMANDS = {"card": card}
