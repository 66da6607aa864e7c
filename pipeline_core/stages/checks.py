"""Before a stage: what it reads is whole and belongs to the run as it is now."""

from __future__ import annotations

from collections.abc import Callable, Generator

from pipeline_core import hookimpl
from pipeline_core.hookspecs import Summary
from pipeline_core.run import ExperimentRun, Run

Checked = Generator[None, Summary | None, Summary | None]


def _make_check(stage: str) -> Callable[[Run], Checked]:
    @hookimpl(wrapper=True, tryfirst=True)
    def check(run: Run) -> Checked:
        from pipeline_core.lineage import require_current

        require_current(run, stage)
        return (yield)

    return check


graph = _make_check("graph")
partition = _make_check("partition")
train = _make_check("train")
evaluate = _make_check("evaluate")
infer = _make_check("infer")
profile = _make_check("profile")


@hookimpl(wrapper=True, tryfirst=True)
def draw(run: ExperimentRun) -> Checked:
    """Check what is drawn."""
    from pipeline_core.lineage import require_current_results

    require_current_results(run)
    return (yield)
