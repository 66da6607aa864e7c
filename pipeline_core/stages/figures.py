"""Stage `figures`: pictures and tables of an experiment, and the comparison with its paper."""

from pipeline_core import hookimpl
from pipeline_core.figures import Figure
from pipeline_core.hookspecs import Summary
from pipeline_core.project.run import ExperimentRun


@hookimpl(trylast=True)
def draw(run: ExperimentRun) -> Summary:
    """Draw the figures of an experiment into `run.folder`."""
    from pipeline_core.report.experiment import draw_experiment

    return draw_experiment(run)


@hookimpl
def figures() -> list[Figure]:
    """Give the engine's own figures."""
    from pipeline_core.figures.catalogue import ENGINE_FIGURES

    return ENGINE_FIGURES
