"""`pipeline-core status`: state of all stages, and progress of those that run.

Only small files are read, neither artifacts nor locks: it may be called at any time, also on a
machine that only sees the folder, such as the login node of a cluster.
"""

import json
import time
from collections.abc import Iterable, Iterator
from typing import Annotated

import typer
from rich.console import Console

from pipeline_core.cli import options
from pipeline_core.cli.status_follow import News, follow_until_nothing_runs, open_screen
from pipeline_core.config.workflow import CONFIG, read_options
from pipeline_core.project.project import Project, list_all_experiments
from pipeline_core.project.run import ExperimentRun
from pipeline_core.status.lines import format_all
from pipeline_core.status.overview import Overview, read_overview

Names = Annotated[
    list[str] | None,
    typer.Argument(help="Experiments as plugin/name; those of workflows/config.yaml if none."),
]
Follow = Annotated[
    bool, typer.Option("--follow", "-f", help="Update until nothing runs; Ctrl-C ends it.")
]
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object, with --follow one a line.")
]


def status(
    experiments: Names = None,
    follow: Follow = False,
    as_json: Json = False,
    workflows: options.Workflows = options.WORKFLOWS,
    results: options.Results = options.RESULTS,
) -> None:
    """Show which stages are done, run, wait or have failed, and the course of trainings."""
    project = options.load_project(workflows, results)
    loaded, problems = load_experiments(project, experiments or choose_experiments(project))

    def read() -> list[Overview]:
        now = time.time()
        return [read_overview(experiment, now) for experiment in loaded]

    def show(overviews: Iterable[Overview]) -> None:
        print_overviews(overviews, problems, as_json=as_json)

    console = Console(highlight=False)
    if not (follow and loaded):
        show(read())
    elif as_json:
        follow_until_nothing_runs(read, show)
    elif console.is_terminal:
        typer.echo("\n".join(format_all([], problems)), nl=bool(problems))
        with open_screen(console, lambda: "Ctrl-C ends this, and nothing else") as screen:
            follow_until_nothing_runs(read, screen)
    else:
        show(read())
        follow_until_nothing_runs(read, News(typer.echo))
    if problems:
        raise typer.Exit(1)


def load_experiments(
    project: Project, names: Iterable[str]
) -> tuple[list[ExperimentRun], list[str]]:
    """Return experiments, and the errors of those that cannot be loaded."""
    loaded, problems = [], []
    for name in names:
        try:
            loaded.append(project.load_experiment(name))
        except ValueError as error:
            problems.append(str(error))
    return loaded, problems


def choose_experiments(project: Project) -> Iterator[str]:
    """Yield the configured experiments, and others in which something runs.

    Raises:
        ValueError: None is configured, and nothing runs.
    """
    configured = read_options(project.workflows).experiments
    others = [
        name
        for name in list_all_experiments(project.workflows)
        if name not in configured and any((project.results / name).glob("*/.*.lock"))
    ]
    if not configured and not others:
        path = project.workflows / CONFIG
        raise ValueError(f"{path}: configures no experiment, and nothing runs; name an experiment")
    yield from [*configured, *others]


def print_overviews(
    overviews: Iterable[Overview], problems: Iterable[str], *, as_json: bool
) -> None:
    """Print all experiments, and the errors of those that could not be read."""
    if as_json:
        content = {"experiments": [one.to_json() for one in overviews], "problems": list(problems)}
        typer.echo(json.dumps(content))
    else:
        typer.echo("\n".join(format_all(overviews, problems)))


COMMANDS = {"status": status}
