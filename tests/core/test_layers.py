"""Who imports whom: no circle of files in any package, type-only imports included."""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from importlib.util import find_spec
from pathlib import Path

import pytest

PACKAGES = (
    "pipeline_core",
    "pipeline_kernels",
    "pipeline_chgnet",
    "pipeline_egnn_esp",
    "pipeline_gauge_flows",
    "pipeline_htfbr",
    "pipeline_mace",
    "snakemake_logger_plugin_pipeline",
)


def list_modules(package: str) -> dict[str, Path]:
    spec = find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    root = Path(next(iter(spec.submodule_search_locations)))
    files = {path: path.relative_to(root.parent).with_suffix("") for path in root.rglob("*.py")}
    return {".".join(name.parts).removesuffix(".__init__"): path for path, name in files.items()}


def find_imports(tree: ast.AST, names: set[str]) -> Iterator[str]:
    """The modules among `names` that a file imports, anywhere in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                yield from (name for name in (submodule, node.module) if name in names)


def build_import_graph(sources: dict[str, str]) -> dict[str, set[str]]:
    """A package imports its own submodules to pass their names on, which is no circle."""
    edges = {}
    for module, text in sources.items():
        imported = set(find_imports(ast.parse(text), set(sources))) - {module}
        edges[module] = {name for name in imported if not module.startswith(f"{name}.")}
    return edges


@pytest.mark.slow
@pytest.mark.parametrize("package", PACKAGES)
def test_no_circle_of_files(package):
    sources = {
        name: path.read_text(encoding="utf-8") for name, path in list_modules(package).items()
    }
    TopologicalSorter(build_import_graph(sources)).prepare()


def test_a_circle_is_noticed():
    sources = {
        "p.a": "from p.b import x",
        "p.b": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.a import X",
    }
    with pytest.raises(CycleError, match="nodes are in a cycle"):
        TopologicalSorter(build_import_graph(sources)).prepare()
