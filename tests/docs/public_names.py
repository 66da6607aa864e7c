"""What plugins may import: the modules that the page of the Python interface lists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from docs.pages import DOCS

PUBLIC = set(re.findall(r"automodule:: ([\w.]+)", (DOCS / "api.md").read_text(encoding="utf-8")))


def list_foreign_imports(text: str) -> Iterator[tuple[str, str]]:
    """The modules of the engine that a source imports from, and the names that it takes."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if "pipeline_" in alias.name)
        elif isinstance(node, ast.ImportFrom) and str(node.module).startswith("pipeline_"):
            yield from ((str(node.module), alias.name) for alias in node.names)


def find_private_imports(text: str) -> list[str]:
    """What a source takes that is not listed as public."""
    taken = [pair for pair in list_foreign_imports(text) if pair != ("pipeline_core", "hookimpl")]
    return [f"{m}.{n}" for m, n in taken if m not in PUBLIC or n.startswith("_")]
