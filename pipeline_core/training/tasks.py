"""Asking a plugin for its task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pipeline_core.run import Run
from pipeline_core.task import Task
from pipeline_core.training.seeds import seed_everything


def build_task(run: Run, metadata: Mapping[str, Any] | None = None) -> Task:
    """Return the task of a run's plugin, with weights drawn from the seed of the run.

    Args:
        run: The run.
        metadata: What the trained model says of itself that is to be rebuilt; None for a new one.

    Raises:
        ValueError: The plugin has none.
    """
    name = run.model_info.name
    seed_everything(run.seed)
    if metadata is not None:
        run = replace(run, metadata=metadata)
    task: Task | None = run.project.registry.hook("task", name)(run=run)
    if task is None:
        raise ValueError(
            f"plugin {name!r} gives no task: implement the hook task(run), or the stages that ask "
            "for one"
        )
    return task
