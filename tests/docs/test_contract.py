"""What the pages say of the contract of plugins is so."""

from __future__ import annotations

import re
from importlib import import_module

import pytest

from docs.pages import DOCS
from docs.public_names import PUBLIC, find_private_imports
from pipeline_core.cli.new_plugin import KINDS, render_files
from pipeline_core.hookspecs import PipelineSpecs

PAGE = (DOCS / "how_to/plugin.md").read_text(encoding="utf-8")


def test_the_page_lists_all_hooks_with_their_arguments():
    hooks = {n: f for n, f in vars(PipelineSpecs).items() if not n.startswith("_")}
    arguments = {n: f.__code__.co_varnames[1 : f.__code__.co_argcount] for n, f in hooks.items()}
    listed = re.findall(r"^\| `(\w+)\((.*?)\)` \|", PAGE, re.MULTILINE)
    assert {n: tuple(filter(None, words.split(", "))) for n, words in listed} == arguments


def test_the_page_lists_all_kinds():
    assert re.findall(r"^\| `(\w+)` \| [^|]+\| [^|]+\| [^|]+\|$", PAGE, re.MULTILINE) == list(KINDS)


@pytest.mark.parametrize("module", sorted(PUBLIC))
def test_what_plugins_may_import_is_there(module):
    assert import_module(module).__doc__


@pytest.mark.parametrize("kind", KINDS)
def test_new_plugins_import_what_is_listed_alone(kind):
    sources = {n: text for n, text in render_files("my_model", kind).items() if n.endswith(".py")}
    private = {
        name: names for name, text in sources.items() if (names := find_private_imports(text))
    }
    assert private == {}


def test_a_private_import_is_noticed():
    text = "from pipeline_core.system.locks import hold\nfrom pipeline_core.task import _x\n"
    assert find_private_imports(text) == [
        "pipeline_core.system.locks.hold",
        "pipeline_core.task._x",
    ]
