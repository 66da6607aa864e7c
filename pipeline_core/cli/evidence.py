"""`pipeline-core keep-evidence` and `check-evidence`: figures that need no training."""

from typing import Annotated, Final

import typer

from pipeline_core.cli import options

Kept = Annotated[
    list[str], typer.Argument(help="Experiments as plugin/name, computed or, to draw again, kept.")
]
Redrawn = Annotated[
    bool,
    typer.Option(
        "--redrawn",
        help="Leave the kept files as they are, draw again, and keep the new figures: after an "
        "intended change of figures.",
    ),
]
Checked = Annotated[
    list[str] | None, typer.Argument(help="Experiments as plugin/name; all with evidence if none.")
]

_NAMED: Final = 5
"""Most changed files that are named."""


def keep_evidence(
    experiments: Kept,
    redrawn: Redrawn = False,
    workflows: options.Workflows = options.WORKFLOWS,
    results: options.Results = options.RESULTS,
) -> None:
    """Copy the small files behind figures to workflows/evidence, to draw without training."""
    from pipeline_core.figures import evidence

    project = options.load_project(workflows, results)
    for name in experiments:
        if redrawn:
            changed = evidence.redraw_evidence(name, project)
            typer.echo(f"{name}: drawn otherwise than before: {', '.join(changed) or 'nothing'}")
            _echo_drift(evidence.list_drift(name, project), name)
            continue
        archive = evidence.keep_evidence(project.load_experiment(name), project)
        typer.echo(f"{archive}: {archive.stat().st_size / 1e6:.2g} MB")


def _echo_drift(files: list[str], name: str) -> None:
    if files:
        more = f" and {len(files) - _NAMED} more files" if len(files) > _NAMED else ""
        typer.echo(f"{name}: older than changes of {', '.join(files[:_NAMED])}{more}")


def check_evidence(
    experiments: Checked = None,
    workflows: options.Workflows = options.WORKFLOWS,
    results: options.Results = options.RESULTS,
) -> None:
    """Draw from evidence; list differences from the kept figures, and code that has changed."""
    from pipeline_core.figures import evidence

    project, n_faults = options.load_project(workflows, results), 0
    for name in experiments or evidence.list_evidence(workflows):
        faults = evidence.check_evidence(name, project)
        n_faults += len(faults)
        for fault in faults:
            typer.echo(fault)
        _echo_drift(evidence.list_drift(name, project), name)
        typer.echo(f"{name}: {'differs' if faults else 'as it was kept'}")
    if n_faults:
        raise typer.Exit(1)


COMMANDS = {"keep-evidence": keep_evidence, "check-evidence": check_evidence}
