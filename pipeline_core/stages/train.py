"""Stage `train`: gradient steps on any number of ranks."""

from pipeline_core import hookimpl
from pipeline_core.hookspecs import Summary
from pipeline_core.project.run import Run


@hookimpl(trylast=True)
def train(run: Run) -> Summary:
    """Train the model of a run and write `run.model` and `run.history`."""
    from pipeline_core.training.trainer import train_run

    return train_run(run)
