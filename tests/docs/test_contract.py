"""What the pages say of the contract of plugins is so."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from docs.pages import DOCS, ROOT
from docs.public_names import PUBLIC, find_private_imports, find_source
from pipeline_core.cli.new_plugin import KINDS, render_files
from pipeline_core.hookspecs import PipelineSpecs

PAGE = (DOCS / "how_to/plugin.md").read_text(encoding="utf-8")


def test_the_page_lists_all_hooks_with_their_arguments():
    hooks = {n: f for n, f in vars(PipelineSpecs).items() if not n.startswith("_")}
    arguments = {n: f.__code__.co_varnames[1 : f.__code__.co_argcount] for n, f in hooks.items()}
    listed = re.findall(r"^\| `(\w+)\((.*?)\)` \|", PAGE, re.MULTILINE)
    assert {n: tuple(filter(None, words.split(", "))) for n, words in listed} == arguments


def list_names(tree: ast.Module) -> Iterator[str]:
    """Yield the names that a module defines, or imports for others."""
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                yield name
            case ast.ImportFrom(names=aliases):
                yield from (alias.name for alias in aliases)


def test_the_page_lists_all_kinds():
    assert re.findall(r"^\| `(\w+)` \| [^|]+\| [^|]+\| [^|]+\|$", PAGE, re.MULTILINE) == list(KINDS)


@pytest.mark.parametrize("module", sorted(PUBLIC))
def test_what_plugins_may_import_is_there_and_explained(module):
    tree = ast.parse(find_source(module).read_text(encoding="utf-8"))
    assert len(ast.get_docstring(tree).split()) > 3
    assert PUBLIC[module] <= set(list_names(tree))


PLUGINS = sorted((ROOT / "plugins").glob("pipeline_*"))
MODELS = {folder.name for folder in PLUGINS} - {"pipeline_atoms"}


@pytest.mark.parametrize("folder", PLUGINS, ids=lambda folder: folder.name)
def test_our_plugins_import_what_is_listed_alone(folder):
    own = MODELS if folder.name == "pipeline_papers" else {folder.name}
    private = {
        str(path.relative_to(folder)): names
        for path in folder.rglob("*.py")
        if (names := find_private_imports(path.read_text(encoding="utf-8"), own))
    }
    assert private == {}


@pytest.mark.parametrize("kind", KINDS)
def test_new_plugins_import_what_is_listed_alone(kind):
    sources = {n: text for n, text in render_files("my_model", kind).items() if n.endswith(".py")}
    private = {
        name: names for name, text in sources.items() if (names := find_private_imports(text))
    }
    assert private == {}


def test_a_private_import_is_noticed():
    text = """
from pipeline_core.artifacts import store, upgrades
from pipeline_core.distributed.guard import Guard
from pipeline_core.task import _x
from pipeline_kernels.halo import exchange, _plan

store.create(upgrades.STATE)
"""
    assert find_private_imports(text) == [
        "pipeline_core.distributed.guard.Guard",
        "pipeline_core.task._x",
        "pipeline_kernels.halo._plan",
        "pipeline_core.artifacts.upgrades.STATE",
    ]
