"""Commands that list what this environment offers."""

from __future__ import annotations

import typer

from pipeline_core.builtin import load_registry
from pipeline_core.cli.output import align
from pipeline_core.readers import Units
from pipeline_core.registry import Plugin


def list_plugins() -> None:
    """List the installed plugins, the broken ones with their error."""
    rows = [_make_row(plugin) for plugin in load_registry().plugins]
    header = ("name", "status", "distribution", "version", "hooks", "about")
    typer.echo(align([header, *rows]))


def _make_row(plugin: Plugin) -> tuple[str, ...]:
    about = plugin.error or ""
    if plugin.model:
        about = f"{plugin.model.summary} ({plugin.model.citation})"
    return (
        plugin.name,
        "broken" if plugin.error else "ok",
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
