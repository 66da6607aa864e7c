"""Installed packages that are a folder of text: what tests of plugins need instead of pip."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

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


def install(folder: Path, name: str, source: str, *, version: str = "1.0") -> Path:
    """Write a distribution `name` with one module `<name>_plugin` behind one entry point `name`.

    The folder has to be on the path; returns the file of the module.
    """
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(f"[pipeline_core]\n{name} = {name}_plugin\n")
    module = folder / f"{name}_plugin.py"
    module.write_text(textwrap.dedent(source))
    return module


def write_model_source(name: str) -> str:
    """Return the least source of a plugin with a model."""
    return MODEL.format(name=name)


def forget(folder: Path) -> None:
    """Drop all modules that were imported from a folder of packages."""
    files = {name: getattr(module, "__file__", None) for name, module in sys.modules.items()}
    for name, file in files.items():
        if file is not None and Path(file).is_relative_to(folder):
            del sys.modules[name]
