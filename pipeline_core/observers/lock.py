"""Stage locks: while a stage of a run is running, a second call of it is refused."""

from typing import Final

from pipeline_core.distributed.world import find_world
from pipeline_core.model_info import STAGES
from pipeline_core.observers.wrappers import Around, StageWrappers
from pipeline_core.project.dataset_run import DatasetRun
from pipeline_core.project.run import Run
from pipeline_core.system.locks import hold, locate_lock


def _guard(run: DatasetRun | Run, stage: str) -> Around:
    world = find_world()
    if world.rank:  # rank 0 holds the lock for all
        return (yield)
    with hold(locate_lock(run.folder, stage), f"the stage {stage!r}", world.size):
        return (yield)


LOCK: Final = StageWrappers(_guard, STAGES[:-1], first=True)
