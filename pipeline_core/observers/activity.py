"""Status files for `pipeline-core status`: progress of a training, error of a failed stage.

Reporting never ends a stage: a file that cannot be written is skipped, and one that cannot be
removed stays.
"""

from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Final

from pipeline_core import hookimpl
from pipeline_core.distributed.world import find_world
from pipeline_core.hookspecs import Summary
from pipeline_core.model_info import STAGES
from pipeline_core.observers.wrappers import Around, StageWrappers
from pipeline_core.project.dataset_run import DatasetRun
from pipeline_core.project.run import ExperimentRun, Run
from pipeline_core.status.files import (
    locate_failure,
    locate_position,
    write_failure,
    write_position,
)
from pipeline_core.status.pace import Position


@hookimpl
def progress(run: Run, position: Position) -> None:
    """Write the position of the training."""
    with suppress(OSError):
        write_position(run, position)


@hookimpl(wrapper=True)
def train(run: Run) -> Generator[None, Summary | None, Summary | None]:
    """Remove the position before the training, and again when it has succeeded."""
    _remove(locate_position(run))
    summary = yield
    _remove(locate_position(run))
    return summary


def _note(run: DatasetRun | Run | ExperimentRun, stage: str) -> Around:
    # Snakemake removes the folder of the figures when they fail.
    folder = run.folder.parent if isinstance(run, ExperimentRun) else run.folder
    path = locate_failure(folder, stage)
    _remove(path)
    try:
        return (yield)
    except BaseException as error:
        with suppress(OSError):
            write_failure(path, error)
        raise


def _remove(path: Path) -> None:
    if find_world().rank == 0:
        with suppress(OSError):
            path.unlink(missing_ok=True)


FAILURES: Final = StageWrappers(_note, STAGES, first=True)
