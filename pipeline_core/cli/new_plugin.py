"""`pipeline-core new-plugin`: a working package to start from."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Annotated

import typer

from pipeline_core.cli.new_files import write_new

TEMPLATES = {
    "pyproject.toml.tmpl": "pyproject.toml",
    "README.md.tmpl": "README.md",
    "init.py.tmpl": "$name/__init__.py",
    "plugin.py.tmpl": "$name/plugin.py",
    "network.py.tmpl": "$name/network.py",
    "test_plugin.py.tmpl": "tests/test_plugin.py",
}


def write_plugin(
    name: Annotated[str, typer.Argument(help="Name of the model, a lower-case identifier.")],
    folder: Annotated[
        Path | None, typer.Option(help="Where to write; a folder of that name if none.")
    ] = None,
) -> None:
    """Write a package with a small potential and its tests, ready to install."""
    target = folder or Path(name)
    if target.exists():
        raise ValueError(f"{target}: exists already; choose another folder with --folder")
    for path, text in render_files(name).items():
        write_new(target / path, text)
    typer.echo(f"wrote {target}; next: pip install -e '{target}[test]' && pytest {target}")


def render_files(name: str) -> dict[str, str]:
    """Return the files of a new plugin: path to content.

    Raises:
        ValueError: The name is no lower-case identifier.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ValueError(f"{name!r} is not a lower-case identifier such as 'my_model'")
    words = {"name": name, "distribution": name.replace("_", "-")}
    templates = files("pipeline_core.cli") / "templates"
    return {
        Template(path).substitute(words): Template(
            (templates / source).read_text(encoding="utf-8")
        ).substitute(words)
        for source, path in TEMPLATES.items()
    }


COMMANDS = {"new-plugin": write_plugin}
