"""Checks before each stage: its inputs are intact and belong to the run as it is now."""

from typing import Final

from pipeline_core.model_info import RUN_STAGES
from pipeline_core.observers.wrappers import Around, StageWrappers
from pipeline_core.project.dataset_run import DatasetRun
from pipeline_core.project.run import ExperimentRun, Run


def _check(run: DatasetRun | Run | ExperimentRun, stage: str) -> Around:
    from pipeline_core.project.lineage import (
        keep_identities,
        require_current,
        require_current_results,
    )

    if isinstance(run, ExperimentRun):
        require_current_results(run)
        return (yield)
    if isinstance(run, Run):
        if not run.has_stage(stage):
            raise ValueError(
                f"{run.experiment}: the model {run.model_info.name!r} has no stage {stage!r}; "
                "leave it out"
            )
        require_current(run, stage)
    with keep_identities(run, stage):
        return (yield)


CHECKS: Final = StageWrappers(_check, ("data", *RUN_STAGES), first=True)
