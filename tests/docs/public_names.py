"""Names that plugins may import: those that the page of the Python interface lists.

Sources are parsed, not imported.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Container, Iterator
from pathlib import Path

from docs.pages import DOCS, ROOT

_ENTRY = re.compile(
    r"^\.\. automodule:: ([\w.]+)\n(?:   :members: ((?:.+\n)(?:      .+\n)*))?", re.MULTILINE
)
_ALWAYS = {("pipeline_core", "hookimpl")}


def read_public() -> dict[str, set[str]]:
    """Return the public modules with their public names, an empty set for all."""
    entries = _ENTRY.findall((DOCS / "api.md").read_text(encoding="utf-8"))
    return {module: set(re.findall(r"\w+", names)) for module, names in entries}


PUBLIC = read_public()


def find_source(module: str) -> Path | None:
    """Return the file of a module of the engine or of `pipeline_atoms`."""
    folders = {"pipeline_core": ROOT, "pipeline_atoms": ROOT / "plugins"}
    path = folders[module.partition(".")[0]] / module.replace(".", "/")
    return next((p for p in (path.with_suffix(".py"), path / "__init__.py") if p.is_file()), None)


def list_imports(text: str) -> Iterator[tuple[str, str]]:
    """Yield the modules that a source imports from, each with a name that it takes.

    Names that are taken from an imported module, such as `store.create`, are among them.
    """
    modules: dict[str, str] = {}
    nodes = list(ast.walk(ast.parse(text)))
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                module = f"{node.module}.{alias.name}"
                if module in PUBLIC:
                    modules[alias.asname or alias.name] = module
                else:
                    yield node.module, alias.name
    for node in nodes if modules else ():
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name in modules:
                yield modules[name], attribute


def find_private_imports(text: str, own: Container[str] = ()) -> list[str]:
    """Return the names that a source imports from our packages, but which are not public.

    Args:
        text: The source.
        own: Packages of which it may take everything.
    """
    return [
        f"{module}.{name}"
        for module, name in list_imports(text)
        if module.startswith("pipeline_")
        and module.partition(".")[0] not in own
        and (module, name) not in _ALWAYS
        and not _is_public(module, name)
    ]


def _is_public(module: str, name: str) -> bool:
    if name.startswith("_") or "._" in module:
        return False
    if module.startswith("pipeline_kernels"):
        return True
    return module in PUBLIC and (not PUBLIC[module] or name in PUBLIC[module])
