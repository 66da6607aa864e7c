"""Installed packages that are a folder of text: what tests of plugins need instead of pip."""

from __future__ import annotations

import sys
import textwrap
from importlib.metadata import EntryPoint, distributions
from pathlib import Path

from pipeline_core import PROJECT

ATOMS = EntryPoint("atoms", "pipeline_atoms.plugin", PROJECT)
"""What models of atoms stand on, where they are not loaded with all that is installed."""

MODEL = """
from pipeline_core import hookimpl
from pipeline_core.config.sections import Section
from pipeline_core.model_info import ModelInfo

class Options(Section):
    width: int = 8
    '''Neurons.'''

@hookimpl
def model():
    return ModelInfo(name="{name}", summary="A test model", citation="none", options=Options)
"""


def install(
    folder: Path, name: str, source: str, *, version: str = "1.0", ending: str = "plugin"
) -> Path:
    """Write a distribution `name` with one module `<name>_<ending>` behind an entry point `name`.

    The folder has to be on the path; returns the file of the module.
    """
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(f"[{PROJECT}]\n{name} = {name}_{ending}\n")
    module = folder / f"{name}_{ending}.py"
    module.write_text(textwrap.dedent(source))
    sys.modules.pop(module.stem, None)  # one of another folder, which a test has left
    return module


def find_points(folder: Path) -> list[EntryPoint]:
    """Return the entry points of the packages of a folder, in the order of their names."""
    packages = sorted(distributions(path=[str(folder)]), key=lambda package: package.name)
    return [p for package in packages for p in package.entry_points if p.group == PROJECT]


def write_model_source(name: str) -> str:
    """Return the least source of a plugin with a model."""
    return MODEL.format(name=name)


def forget(folder: Path) -> None:
    """Drop all modules that were imported from a folder of packages."""
    files = {name: getattr(module, "__file__", None) for name, module in sys.modules.items()}
    for name, file in files.items():
        if file is not None and Path(file).is_relative_to(folder):
            del sys.modules[name]
