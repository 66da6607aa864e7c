"""Who imports whom: no circle of files in any package, type-only imports included."""

from graphlib import CycleError, TopologicalSorter

import grimp
import pytest

PACKAGES = (
    "pipeline_core",
    "pipeline_kernels",
    "pipeline_atoms",
    "pipeline_chgnet",
    "pipeline_egnn_esp",
    "pipeline_gauge_flows",
    "pipeline_htfbr",
    "pipeline_mace",
    "pipeline_papers",
    "snakemake_logger_plugin_pipeline",
)


def order_files(package: str) -> list[str]:
    """List the files of a package so that each comes after those that it imports.

    A package imports its own submodules to pass their names on, which is no circle.
    """
    graph = grimp.build_graph(package, cache_dir=None)
    edges = {
        name: {
            n for n in graph.find_modules_directly_imported_by(name) if not n.startswith(f"{name}.")
        }
        for name in graph.modules
    }
    return list(TopologicalSorter(edges).static_order())


@pytest.mark.slow
@pytest.mark.parametrize("package", PACKAGES)
def test_no_circle_of_files(package):
    assert package in order_files(package)


def test_a_circle_is_noticed(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    package = tmp_path / "of_circles"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "a.py").write_text("from of_circles.b import x")
    (package / "b.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from of_circles.a import X"
    )
    with pytest.raises(CycleError, match="nodes are in a cycle"):
        order_files("of_circles")
