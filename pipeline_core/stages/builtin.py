"""All plugins in one registry: the contract, the engine's own plugins, the installed ones."""

from collections.abc import Iterable
from importlib.metadata import EntryPoint
from typing import Any, Final

from pipeline_core.hookspecs import HOOKS_VERSION, PipelineSpecs
from pipeline_core.observers import activity, tensorboard
from pipeline_core.observers.inputs import CHECKS
from pipeline_core.observers.lock import LOCK
from pipeline_core.observers.progress import PROGRESS
from pipeline_core.observers.records import RECORDS
from pipeline_core.registry import Registry
from pipeline_core.stages import (
    evaluate,
    figures,
    partition,
    profile,
    train,
)

ENGINE: Final = (
    ("engine.partition", partition),
    ("engine.train", train),
    ("engine.evaluate", evaluate),
    ("engine.profile", profile),
    ("engine.figures", figures),
    ("engine.checks", CHECKS),
    ("observer.failures", activity.FAILURES),
    ("observer.lock", LOCK),
    ("observer.records", RECORDS),
    ("observer.activity", activity),
    ("observer.progress", PROGRESS),
    ("observer.tensorboard", tensorboard),
)
"""The engine's own plugins, by name; their modules are light and import heavy code late."""


def load_registry(
    points: Iterable[EntryPoint] | None = None, builtin: Iterable[tuple[str, Any]] = ENGINE
) -> Registry:
    """Return all plugins: the engine's own stages and observers, and the installed ones.

    Args:
        points: Entry points to load; those of the installed packages if None.
        builtin: Name and module of plugins without entry points, for tests.
    """
    return Registry(PipelineSpecs, HOOKS_VERSION, builtin, points)
