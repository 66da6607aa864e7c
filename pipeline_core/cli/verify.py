"""`pipeline-core verify`: integrity and consistency of all artifacts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline_core.cli import options
from pipeline_core.project.project import list_all_experiments

if TYPE_CHECKING:
    from pipeline_core.project.lineage import Fault

Names = Annotated[
    list[str] | None, typer.Argument(help="Experiments as plugin/name; all with results if none.")
]


def verify(
    experiments: Names = None,
    as_json: options.Json = False,
    workflows: options.Workflows = options.WORKFLOWS,
    results: options.Results = options.RESULTS,
) -> None:
    """Read all artifacts; list damaged or stale ones, with the commands that make them again."""
    from pipeline_core.project.verification import inspect_experiment

    project = options.load_project(workflows, results)
    present = [name for name in list_all_experiments(workflows) if (results / name).is_dir()]
    checked: dict[Path, bool] = {}
    faults: dict[Path, Fault] = {}
    for name in experiments or present:
        for fault in inspect_experiment(project.load_experiment(name), checked):
            faults.setdefault(fault.path, fault)
    unsealed = sorted(str(path) for path, sealed in checked.items() if not sealed)
    if as_json:
        listed = [
            {"path": str(f.path), "problem": f.problem, "command": f.command}
            for f in faults.values()
        ]
        typer.echo(json.dumps({"checked": len(checked), "unsealed": unsealed, "faults": listed}))
    else:
        for fault in faults.values():
            typer.echo(str(fault))
        others = f", {len(unsealed)} of them without a checksum" if unsealed else ""
        typer.echo(f"{len(checked)} artifacts{others}: {len(faults) or 'none'} damaged or stale")
    if faults:
        raise typer.Exit(1)


COMMANDS = {"verify": verify}
