"""Stage locks: while a stage of a run is running, a second call of it is refused."""

from __future__ import annotations

from typing import Final

from pipeline_core.dataset_run import DatasetRun
from pipeline_core.distributed.world import find_world
from pipeline_core.locks import hold, locate_lock
from pipeline_core.model_info import STAGES
from pipeline_core.run import Run
from pipeline_core.stage_wrappers import Around, StageWrappers


def _guard(run: DatasetRun | Run, stage: str) -> Around:
    world = find_world()
    if world.rank:  # rank 0 holds the lock for all
        return (yield)
    with hold(locate_lock(run.folder, stage), f"the stage {stage!r}", world.size):
        return (yield)


LOCK: Final = StageWrappers(_guard, STAGES[:-1], first=True)
