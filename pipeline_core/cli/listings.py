"""Commands that list what this environment offers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipeline_core.builtin import load_registry
from pipeline_core.cli import options
from pipeline_core.cli.output import align
from pipeline_core.readers import Units
from pipeline_core.registry import Plugin

Check = Annotated[
    str | None,
    typer.Option(
        metavar="PLUGIN",
        help="Run the conformance suite on a plugin, by its name or that of its package, instead; "
        "needs pytest.",
    ),
]
Example = Annotated[
    str | None,
    typer.Option(
        "--experiment",
        help="With --check: where options and data come from; if none is named, an experiment of "
        "the plugin of the scale smoke, else its defaults on alloys.",
    ),
]


def list_plugins(
    check: Check = None,
    experiment: Example = None,
    workflows: options.Workflows = options.WORKFLOWS,
) -> None:
    """List the installed plugins, the broken ones with their error; or check one of them."""
    if check is not None:
        _check(check, experiment, workflows)
        return
    if experiment is not None:
        raise ValueError("--experiment says what --check takes; add --check PLUGIN")
    rows = [_make_row(plugin) for plugin in load_registry().plugins]
    header = ("name", "status", "distribution", "version", "hooks", "about")
    typer.echo(align([header, *rows]))


def _check(name: str, experiment: str | None, workflows: Path) -> None:
    try:
        from pipeline_core.testing.check import check_plugin
    except ModuleNotFoundError as error:
        if error.name != "pytest":
            raise
        raise ValueError("the conformance suite needs pytest: pip install pytest") from None
    project = options.load_project(workflows, options.RESULTS)
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
        "broken" if plugin.error else "deprecated" if plugin.deprecated else "ok",
        plugin.distribution,
        plugin.version,
        ",".join(plugin.hooks) or "-",
        " ".join(about.split()),
    )


def list_readers() -> None:
    """List the raw formats that datasets can be read from."""
    rows = [
        (r.name, " ".join(r.suffixes) or "-", format_units(r.units), r.summary)
        for r in sorted(load_registry().collect("readers"), key=lambda reader: reader.name)
    ]
    typer.echo(align([("name", "suffixes", "units", "about"), *rows]))


def format_units(units: Units) -> str:
    """Return units of energy, force and stress, and the sign of the stress, in one line."""
    return f"{units.energy}, {units.force}, {units.stress} ({units.stress_sign})"


COMMANDS = {"plugins": list_plugins, "readers": list_readers}
