"""Commands that list plugins and experiments."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from pipeline_core.cli import options
from pipeline_core.config.experiments import ExperimentFile
from pipeline_core.config.workflow import read_options
from pipeline_core.config.yaml_files import read_yaml, validate_content
from pipeline_core.project.project import Project, list_all_experiments
from pipeline_core.registry import Plugin
from pipeline_core.stages.builtin import load_registry
from pipeline_core.status.output import align

Check = Annotated[
    str | None,
    typer.Option(
        metavar="PLUGIN",
        help="Run the conformance suite on a plugin instead, given by its name or its package's; "
        "needs pytest.",
    ),
]
Example = Annotated[
    str | None,
    typer.Option(
        "--experiment",
        help="With --check: the experiment that gives options and data; by default one of the "
        "plugin's of the scale smoke, else its defaults on alloys.",
    ),
]


def list_plugins(
    check: Check = None,
    experiment: Example = None,
    as_json: options.Json = False,
    workflows: options.Workflows = options.WORKFLOWS,
) -> None:
    """List the installed plugins, the broken ones with their error; or check one of them."""
    if check is not None:
        _check(check, experiment, workflows)
        return
    if experiment is not None:
        raise ValueError("--experiment is an option of --check; add --check PLUGIN")
    plugins = load_registry().plugins
    if as_json:
        typer.echo(json.dumps([_describe_plugin(plugin) for plugin in plugins]))
        return
    header = ("name", "status", "distribution", "version", "hooks", "about")
    typer.echo(align([header, *map(_make_row, plugins)]))


def _check(name: str, experiment: str | None, workflows: Path) -> None:
    try:
        from pipeline_core.testing.check import check_plugin
    except ModuleNotFoundError as error:
        if error.name != "pytest":
            raise
        raise ValueError("the conformance suite needs pytest: pip install pytest") from None
    if experiment is not None:
        options.require_folder(workflows)  # without an experiment, no folder is needed
    project = Project(workflows, options.RESULTS, load_registry())
    if not check_plugin(project, name, experiment):
        raise typer.Exit(1)


def _make_row(plugin: Plugin) -> tuple[str, ...]:
    about = plugin.error or ""
    if plugin.model:
        about = f"{plugin.model.summary} ({plugin.model.citation})"
    if plugin.deprecated:
        about = "; ".join(plugin.deprecated)
    return (
        plugin.name,
        _name_status(plugin),
        plugin.distribution,
        plugin.version,
        ",".join(plugin.hooks) or "-",
        " ".join(about.split()),
    )


def _name_status(plugin: Plugin) -> str:
    return "broken" if plugin.error else "deprecated" if plugin.deprecated else "ok"


def _describe_plugin(plugin: Plugin) -> dict[str, Any]:
    content = {
        "name": plugin.name,
        "status": _name_status(plugin),
        "distribution": plugin.distribution,
        "version": plugin.version,
        "hooks": plugin.hooks,
        "error": plugin.error,
    }
    keys = ("name", "summary", "citation", "data_kind", "predicts")
    model = plugin.model and {key: getattr(plugin.model, key) for key in keys}
    return {**content, "model": model}


def list_experiments(
    as_json: options.Json = False, workflows: options.Workflows = options.WORKFLOWS
) -> None:
    """List the experiments of this folder; a star marks those that plain `snakemake` computes."""
    options.require_folder(workflows)
    configured = read_options(workflows).experiments
    rows = [
        {**_describe_experiment(workflows, name), "configured": name in configured}
        for name in list_all_experiments(workflows)
    ]
    if as_json:
        typer.echo(json.dumps(rows))
        return
    header = ("", "name", "plugin", "dataset", "scale", "variants", "about")
    typer.echo(align([header, *map(_format_experiment, rows)]))


def _describe_experiment(workflows: Path, name: str) -> dict[str, Any]:
    """Return the contents of an experiment file, or its error."""
    path = workflows / "experiments" / f"{name}.yaml"
    try:
        file = validate_content(ExperimentFile, read_yaml(path), path)
    except ValueError as error:
        keys = ("plugin", "dataset", "scale", "variants", "description")
        return {"name": name, **dict.fromkeys(keys), "error": str(error)}
    return {
        "name": name,
        "plugin": file.plugin,
        "dataset": file.dataset,
        "scale": file.scale,
        "variants": list(file.variants),
        "description": " ".join(file.description.split()),
        "error": None,
    }


def _format_experiment(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        "*" if row["configured"] else "",
        row["name"],
        row["plugin"] or "-",
        row["dataset"] or "-",
        row["scale"] or "-",
        str(len(row["variants"] or [])),
        row["description"] or f"broken: {' '.join(row['error'].split())}",
    )


COMMANDS = {
    "plugins": list_plugins,
    "experiments": list_experiments,
}
