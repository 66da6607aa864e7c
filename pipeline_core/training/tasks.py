"""Asking a plugin for its task."""

from __future__ import annotations

from pipeline_core.run import Run
from pipeline_core.task import Task
from pipeline_core.training.seeds import seed_everything


def build_task(run: Run) -> Task:
    """Return the task of a run's plugin, with weights drawn from the seed of the run.

    Raises:
        ValueError: The plugin has none.
    """
    name = run.model_info.name
    seed_everything(run.seed)
    task: Task | None = run.project.registry.hook("task", name)(run=run)
    if task is None:
        raise ValueError(
            f"plugin {name!r} gives no task: implement the hook task(run), or the stages that ask "
            "for one"
        )
    return task
