"""A plugin-based workflow engine for scientific machine-learning pipelines.

Eight stages (`data`, `graph`, `partition`, `train`, `evaluate`, `infer`, `profile`, `figures`)
turn raw data into a trained, evaluated and usable model and its figures. `pipeline_core.hookspecs`
holds the contract of a plugin. Importing this package is cheap: it loads neither torch nor a
plugin.
"""

from pluggy import HookimplMarker, HookspecMarker

__version__ = "0.1.0"

PROJECT = "pipeline_core"
"""The name under which plugins register: pluggy project and entry-point group."""

hookspec = HookspecMarker(PROJECT)
hookimpl = HookimplMarker(PROJECT)

__all__ = ["PROJECT", "__version__", "hookimpl", "hookspec"]
