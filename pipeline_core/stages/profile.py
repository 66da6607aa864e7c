"""Stage `profile`: time and memory of training steps."""

from pipeline_core import hookimpl
from pipeline_core.hookspecs import Summary
from pipeline_core.project.run import Run


@hookimpl(trylast=True)
def profile(run: Run) -> Summary:
    """Measure training steps of the trained model and project epochs; write `run.profile`."""
    from pipeline_core.profiling.study import profile_run

    return profile_run(run)
