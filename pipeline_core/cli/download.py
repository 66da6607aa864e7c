"""`pipeline-core download`: raw files that do not come with a dataset file."""

from typing import Annotated

import typer

from pipeline_core.cli import options
from pipeline_core.status.output import count

FILE = "Only this file, as the dataset file names it; may be given more than once."


def download(
    dataset: options.Dataset,
    file: Annotated[list[str] | None, typer.Option(help=FILE)] = None,
    workflows: options.Workflows = options.WORKFLOWS,
) -> None:
    """Fetch raw files that are missing; check the hashes of those that are there."""
    from pipeline_core.data.downloads import fetch

    run = options.load_project(workflows, options.RESULTS).load_dataset(dataset)
    n_fetched = fetch(run, file or [], typer.echo)
    typer.echo(f"{count(n_fetched, 'file')} fetched")


COMMANDS = {"download": download}
