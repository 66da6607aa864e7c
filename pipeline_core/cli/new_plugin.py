"""`pipeline-core new-plugin`: a working package to start from."""

import ast
import importlib.util
import keyword
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Annotated, Final, Literal

import typer

from pipeline_core.cli.new_files import write_new
from pipeline_core.hookspecs import HOOKS_VERSION
from pipeline_core.stages.builtin import load_registry

Kind = Literal["potential", "samples", "solver"]


@dataclass(frozen=True)
class Package:
    """A kind of package.

    Attributes:
        folders: Folders of its templates, all of which it takes.
        dataset: Name of its dataset.
        summary: One sentence about its model, for its files.
        engine: Parts of its work that the engine does.
        words: Further values for its templates.
    """

    folders: tuple[str, ...]
    dataset: str
    summary: str
    engine: str
    words: Mapping[str, str] = field(default_factory=dict)


KINDS: Final[dict[Kind, Package]] = {
    "potential": Package(
        folders=("shared", "potential"),
        dataset="alloys",
        summary="A potential of pairs and densities",
        engine="import, graphs, balance and training on many ranks, evaluation, dynamics, figures",
    ),
    "samples": Package(
        folders=("shared", "table", "samples"),
        dataset="copper",
        summary="A neural network between the columns of a table",
        engine="balance and training on many ranks, evaluation, figures",
        words={"small_model": '{"width": 4}', "small_train": '{"epochs": 2, "batch_size": 16}'},
    ),
    "solver": Package(
        folders=("shared", "table", "solver"),
        dataset="copper",
        summary="Ridge regression between the columns of a table",
        engine="storing the model, evaluation, figures",
        words={"small_model": '{"degree": 2}', "small_train": '{"penalties": [1e-8, 1e-4]}'},
    ),
}

_PLACES: Final = {
    "alloys.extxyz": "workflows/datasets/alloys.extxyz",
    "ci.yml": ".github/workflows/test.yml",
    "copper.csv": "workflows/datasets/copper.csv",
    "config.yaml": "workflows/config.yaml",
    "dataset.yaml": "workflows/datasets/$dataset.yaml",
    "experiment.yaml": "workflows/experiments/$name/first.yaml",
    "gitignore": ".gitignore",
    "init.py": "$name/__init__.py",
}
"""Paths of files other than modules, tests and files of the package's own folder."""


def write_plugin(
    name: Annotated[str, typer.Argument(help="Name of the model, a lower-case identifier.")],
    kind: Annotated[
        Kind,
        typer.Option(
            help="potential: energies of atoms. samples: samples and a loss of its own, for the "
            "shared trainer. solver: no gradient steps."
        ),
    ] = "potential",
    folder: Annotated[
        Path | None, typer.Option(help="Where to write; a folder of that name if none.")
    ] = None,
) -> None:
    """Write a package with a small model, its tests, an experiment and data, ready to install."""
    target = folder or Path(name)
    _require_free(name)
    if target.exists():
        raise ValueError(f"{target}: exists already; choose another folder with --folder")
    for path, text in render_files(name, kind).items():
        write_new(target / path, text)
    typer.echo(
        f"wrote {target}; next:\n"
        f"  pip install -e '{target}[test]' && pytest {target}\n"
        f"  cd {target} && pipeline-core init && snakemake"
    )


def _require_free(name: str) -> None:
    """Check that the name of a package and a plugin is free among the installed ones.

    Raises:
        ValueError: The name is taken.
    """
    owners = [p for p in load_registry().plugins if name in (p.name, p.model and p.model.name)]
    if owners:
        raise ValueError(
            f"{name!r}: a plugin of this name is installed, from {owners[0].distribution} "
            f"{owners[0].version}; choose another name"
        )
    if keyword.iskeyword(name) or (name.isidentifier() and importlib.util.find_spec(name)):
        raise ValueError(
            f"{name!r}: Python has a keyword or an installed module of this name, so the package "
            f"could not be imported beside it; choose another name, such as '{name}_model'"
        )


def render_files(name: str, kind: Kind) -> dict[str, str]:
    """Return the files of a new plugin: path to content.

    Raises:
        ValueError: The name is not a lower-case identifier.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ValueError(f"{name!r} is not a lower-case identifier such as 'my_model'")
    package = KINDS[kind]
    words = {
        "name": name,
        "distribution": name.replace("_", "-"),
        "dataset": package.dataset,
        "summary": package.summary,
        "engine": package.engine,
        "hooks_version": HOOKS_VERSION,
        **package.words,
    }
    templates = _read_templates(package)
    rendered = {
        Template(_place(source)).substitute(words): Template(text).safe_substitute(words)
        for source, text in templates.items()
    }
    readme = Template(rendered["README.md"])
    return {**rendered, "README.md": readme.substitute(files=_describe_modules(name, rendered))}


def _read_templates(package: Package) -> dict[str, str]:
    """Return the templates of a kind: name of the resulting file to content."""
    root = files("pipeline_core.cli") / "templates"
    found = [path for folder in package.folders for path in (root / folder).iterdir()]
    return {p.name.removesuffix(".tmpl"): p.read_text(encoding="utf-8") for p in found}


def _place(source: str) -> str:
    """Return the path of a template's file, relative to the package."""
    if source in _PLACES:
        return _PLACES[source]
    if not source.endswith(".py"):
        return source
    return f"tests/{source}" if source.startswith("test_") else f"$name/{source}"


def _describe_modules(name: str, rendered: Mapping[str, str]) -> str:
    """Return the rows of a table: each module and the first line of its docstring."""
    modules = [path for path in sorted(rendered) if path.startswith(f"{name}/")]
    docs = {path: ast.get_docstring(ast.parse(rendered[path])) or "" for path in modules}
    rows = [(path, doc.partition("\n")[0].rstrip(".")) for path, doc in docs.items()]
    return "\n".join(f"| `{path}` | {doc} |" for path, doc in rows if "__init__" not in path)


COMMANDS = {"new-plugin": write_plugin}
