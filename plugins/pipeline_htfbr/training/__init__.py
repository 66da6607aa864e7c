"""Fitting a surface: stage `train` by the method of the experiment."""

from pipeline_core.hookspecs import Summary
from pipeline_core.project.run import Run
from pipeline_htfbr.options import HTTrainOptions


def train_surface(run: Run) -> Summary | None:
    """Fit the surface of a run; return None if the shared trainer is to fit it.

    Raises:
        ValueError: Options contradict the data, files do not match, or the training
            diverges.
    """
    options = run.get_section("train", HTTrainOptions)
    if options.method == "trainer":
        return None
    if options.method == "solver":
        from pipeline_htfbr.training.solver import solve_surface

        return solve_surface(run)
    from pipeline_htfbr.training.fit import train_by_gradients
    from pipeline_htfbr.training.resident import RESIDENT

    return train_by_gradients(run, RESIDENT)
