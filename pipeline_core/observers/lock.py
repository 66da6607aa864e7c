"""One writer a stage: a second call of the same stage of the same run is refused."""

from __future__ import annotations

from collections.abc import Callable, Generator

from pipeline_core import hookimpl
from pipeline_core.distributed.world import find_world
from pipeline_core.hookspecs import Summary
from pipeline_core.locks import hold
from pipeline_core.run import DatasetRun, Run

Guarded = Generator[None, Summary | None, Summary | None]


def _make_guard(stage: str) -> Callable[[DatasetRun | Run], Guarded]:
    @hookimpl(wrapper=True, tryfirst=True)
    def guard(run: DatasetRun | Run) -> Guarded:
        if find_world().rank:  # rank 0 holds the lock for all
            return (yield)
        with hold(run.folder / f".{stage}.lock", f"the stage {stage!r}"):
            return (yield)

    return guard


data = _make_guard("data")
graph = _make_guard("graph")
partition = _make_guard("partition")
train = _make_guard("train")
evaluate = _make_guard("evaluate")
infer = _make_guard("infer")
profile = _make_guard("profile")
