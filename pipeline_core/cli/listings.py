"""Commands that list what this environment offers."""

from __future__ import annotations

import typer

from pipeline_core.cli.output import aligned
from pipeline_core.readers import Units
from pipeline_core.registry import Plugin, Registry


def plugins() -> None:
    """List the installed plugins, the broken ones with their error."""
    rows = [_row(plugin) for plugin in Registry().plugins]
    header = ("name", "status", "distribution", "version", "hooks", "about")
    typer.echo(aligned([header, *rows]))


def _row(plugin: Plugin) -> tuple[str, ...]:
    about = plugin.error or (plugin.model.summary if plugin.model else "")
    return (
        plugin.name,
        "broken" if plugin.error else "ok",
        plugin.distribution,
        plugin.version,
        ",".join(plugin.hooks) or "-",
        " ".join(about.split()),
    )


def readers() -> None:
    """List the raw formats that datasets can be read from."""
    found = [reader for group in Registry().manager.hook.readers() for reader in group]
    rows = [
        (r.name, " ".join(r.suffixes) or "-", _units(r.units), r.summary)
        for r in sorted(found, key=lambda reader: reader.name)
    ]
    typer.echo(aligned([("name", "suffixes", "units", "about"), *rows]))


def _units(units: Units) -> str:
    return f"{units.energy}, {units.force}, {units.stress} ({units.stress_sign})"


COMMANDS = {"plugins": plugins, "readers": readers}
