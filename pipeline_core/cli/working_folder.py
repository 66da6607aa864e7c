"""`pipeline-core init`: a folder for `snakemake` where there is no clone."""

from pathlib import Path
from typing import Annotated

import typer

from pipeline_core.stages.builtin import load_registry

EXAMPLE = "chgnet/hfo2"

Folder = Annotated[Path, typer.Argument(help="The folder; it is made if it does not exist.")]
Example = Annotated[
    list[str] | None,
    typer.Option(
        "--experiment",
        help="An experiment of the package to copy, more than once for several; "
        f"{EXAMPLE} by default. A folder with a workflows/config.yaml needs none.",
    ),
]
Upgrade = Annotated[
    bool,
    typer.Option(
        "--upgrade", help="Upgrade Snakefile, rules and profiles of an older working folder."
    ),
]


def init(folder: Folder = Path(), experiment: Example = None, upgrade: Upgrade = False) -> None:
    """Make a working folder: Snakefile, profiles, and an experiment with its data."""
    from pipeline_core.project.working_folder import (
        CONFIG,
        has_configuration,
        make_folder,
        upgrade_folder,
    )

    if upgrade:
        if experiment:
            raise ValueError("--upgrade adds no experiments; leave --experiment out")
        lines = upgrade_folder(folder)
        typer.echo("\n".join(lines or [f"{folder}: nothing to do"]))
        return
    kept = not experiment and has_configuration(folder)
    experiments = [] if kept else experiment or [EXAMPLE]
    make_folder(folder, experiments, load_registry())
    named = ", ".join(experiments) or f"{CONFIG} as it was"
    typer.echo(
        f"made {folder}/ with Snakefile, profiles/ and workflows/ ({named})\n"
        f"next: {'' if folder == Path() else f'cd {folder} && '}snakemake"
    )


COMMANDS = {"init": init}
