"""Training courses: a training with the earlier stages whose weights it started from."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pipeline_chgnet.options import CHGNetOptions
from pipeline_core.config.sections import OF_VARIANT, PUBLISHED, TrainOptions
from pipeline_core.figures import results
from pipeline_core.project.run import ExperimentRun, Run

NETWORKS: Final = ("reference", "without heads", "with heads", "heads, then conservative")
"""Kinds of courses, in the order of figures."""


@dataclass(frozen=True)
class Course:
    """All training stages that led to the weights of a run.

    Attributes:
        run: The run.
        stages: The runs whose weights it started from, the earliest first, then the run.
        errors: Quantity -> MAE on the validation split after each epoch, (n_epochs,), in the
            engine's unit.
        seconds: Time of training until the end of each epoch, (n_epochs,).
    """

    run: Run
    stages: tuple[Run, ...]
    errors: dict[str, NDArray[np.float64]]
    seconds: NDArray[np.float64]

    @property
    def epochs(self) -> int:
        """Number of epochs of all stages."""
        return len(self.seconds)

    @property
    def kind(self) -> str:
        """The kind of network, one of `NETWORKS`."""
        options = self.run.get_section("model", CHGNetOptions)
        if options.heads != "none":
            return "with heads"
        if any(stage.get_section("model", CHGNetOptions).heads != "none" for stage in self.stages):
            return "heads, then conservative"
        return "reference" if options.kernels == "reference" else "without heads"

    @property
    def name(self) -> str:
        """Name in figures."""
        if not self.epochs:
            return "published weights"
        return f"{self.kind}, {self.epochs} epoch{'s' if self.epochs > 1 else ''}"


def read_courses(experiment: ExperimentRun) -> list[Course]:
    """Return the courses of all runs of CHGNet that were trained or have published weights."""
    runs = [r for r in experiment.runs.values() if isinstance(r.options, CHGNetOptions)]
    by_model = {str(run.model): run for run in runs}
    courses = [_read_course(run, by_model) for run in runs]
    return [course for course in courses if course is not None]


def _read_course(run: Run, by_model: dict[str, Run]) -> Course | None:
    """Return the course of a run; None if a stage of it has not been trained."""
    stages = [run]
    while (before := by_model.get(_find_start(stages[0]))) is not None:
        stages.insert(0, before)
    histories = {stage.variant: results.read_history(stage) for stage in stages}
    if any(_read_training(stage).epochs and not histories[stage.variant] for stage in stages):
        return None
    records = [record for history in histories.values() for record in history]
    names = list(records[0]["mae"]) if records else []
    errors = {name: np.array([record["mae"][name] for record in records]) for name in names}
    seconds = np.cumsum([record["seconds"] for record in records])
    return Course(run, tuple(stages), errors, seconds)


def _read_training(run: Run) -> TrainOptions:
    return run.get_section("train", TrainOptions)


def _find_start(run: Run) -> str:
    """Return the file of the weights that a run starts from; empty for random ones."""
    start = _read_training(run).start_from or ""
    assert not start.startswith(OF_VARIANT), start  # resolved when the experiment was read
    return "" if start.startswith(PUBLISHED) else start
