"""The engine's own plugins, registered like everyone's: stages, readers and observers."""

from __future__ import annotations

from types import ModuleType

from pipeline_core.observers import progress, records, tensorboard
from pipeline_core.readers import catalogue
from pipeline_core.stages import data, evaluate, figures, graph, infer, partition, train


def builtin_plugins() -> list[tuple[str, ModuleType]]:
    """Return name and module of each; the modules are light and import their work late."""
    stages = {
        "data": data,
        "graph": graph,
        "partition": partition,
        "train": train,
        "evaluate": evaluate,
        "infer": infer,
        "figures": figures,
    }
    observers = {"records": records, "progress": progress, "tensorboard": tensorboard}
    return [
        *((f"engine.{name}", module) for name, module in stages.items()),
        ("engine.readers", catalogue),
        *((f"observer.{name}", module) for name, module in observers.items()),
    ]
