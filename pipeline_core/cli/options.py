"""Options that many commands share, and the project that they select."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from pipeline_core.config.experiments import BASE
from pipeline_core.project.project import Project
from pipeline_core.stages.builtin import load_registry

Workflows = Annotated[Path, typer.Option(help="Folder with datasets/ and experiments/.")]
Results = Annotated[Path, typer.Option(help="Folder for artifacts.")]
Dataset = Annotated[str, typer.Option(help="Name of a dataset: datasets/NAME.yaml.")]
Experiment = Annotated[str, typer.Option(help="Plugin/name: experiments/PLUGIN/NAME.yaml.")]
Variant = Annotated[str, typer.Option(help="A variant of the experiment.")]
Ranks = Annotated[
    int, typer.Option(min=1, help="Processes on this machine, if no launcher has started them.")
]
Device = Annotated[
    Literal["auto", "cpu", "cuda"],
    typer.Option(help="auto takes a GPU if there is one."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document, with all numbers.")]

WORKFLOWS = Path("workflows")
RESULTS = Path("results")

__all__ = ["BASE", "RESULTS", "WORKFLOWS", "load_project", "require_folder"]


def load_project(workflows: Path, results: Path) -> Project:
    """Return the project of two folders, with the plugins of this environment.

    Raises:
        ValueError: There is no folder of workflows.
    """
    require_folder(workflows)
    return Project(workflows, results, load_registry())


def require_folder(workflows: Path) -> None:
    """Check that there is a folder of workflows.

    Raises:
        ValueError: There is none.
    """
    if not workflows.is_dir():
        raise ValueError(
            f"{workflows.resolve()}: no such folder; go to one that has it, name it with "
            "--workflows, or make a new one: pipeline-core init FOLDER"
        )
