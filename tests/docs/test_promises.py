"""Each promise of `docs/promises.md` names the tests that hold it, and these are there."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from docs.pages import DOCS, ROOT

PROMISES = re.findall(r"^- (.*(?:\n  .*)*)", (DOCS / "promises.md").read_text(), re.MULTILINE)
REFERENCE = re.compile(r"<!-- ([\w/]+\.py)::(test_\w+) -->")


@cache
def list_tests(file: str) -> set[str]:
    """Return the names of the test functions of a file."""
    nodes = ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8")))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("promise", PROMISES, ids=[p[:40] for p in PROMISES])
def test_a_promise_names_tests_that_exist(promise):
    named = REFERENCE.findall(promise)
    assert named
    assert [f"{file}::{name}" for file, name in named if name not in list_tests(file)] == []


def test_all_promises_are_found():
    assert len(PROMISES) == (DOCS / "promises.md").read_text().count("\n- ") > 60
