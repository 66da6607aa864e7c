"""Stage `evaluate`: errors and predictions on held-out samples."""

from pipeline_core import hookimpl
from pipeline_core.hookspecs import Summary
from pipeline_core.project.run import Run


@hookimpl(trylast=True)
def evaluate(run: Run) -> Summary:
    """Compare predictions with labels; write `run.metrics` and `run.predictions`."""
    from pipeline_core.evaluation.evaluate import evaluate_run

    return evaluate_run(run)
