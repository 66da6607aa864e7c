"""`pipeline-core readers`: the raw formats that datasets can be read from."""

import json
from dataclasses import asdict

import typer

from pipeline_atoms.readers import Reader, Units
from pipeline_core.cli import options
from pipeline_core.stages.builtin import load_registry
from pipeline_core.status.output import align


def list_readers(as_json: options.Json = False) -> None:
    """List the raw formats that datasets can be read from."""
    registry = load_registry()
    readers: list[Reader] = sorted(registry.collect("readers"), key=lambda reader: reader.name)
    if as_json:
        keys = ("name", "summary", "suffixes", "keys", "beside")
        listed = [
            {**{key: getattr(one, key) for key in keys}, "units": asdict(one.units)}
            for one in readers
        ]
        typer.echo(json.dumps(listed))
        return
    rows = [
        (one.name, " ".join(one.suffixes) or "-", format_units(one.units), one.summary)
        for one in readers
    ]
    typer.echo(align([("name", "suffixes", "units", "about"), *rows]))


def format_units(units: Units) -> str:
    """Format units of energy, force and stress, and the sign of the stress, in one line."""
    return f"{units.energy}, {units.force}, {units.stress} ({units.stress_sign})"


COMMANDS = {"readers": list_readers}
