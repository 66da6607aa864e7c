"""States of all stages of an experiment, read from small files."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline_core.project.run import ExperimentRun, Run
from pipeline_core.status.activity import Activity, read_dataset, read_figures, read_run


@dataclass(frozen=True)
class Overview:
    """States of the stages of an experiment.

    Attributes:
        experiment: Its name.
        datasets: Data stage by the dataset's name.
        runs: Stages by variant, in order; a stage that is not needed is left out.
        figures: Its figures.
        labels: By variant with raw data of its own, such as a round of active learning, the
            numbers of its existing files and of all its files.
    """

    experiment: str
    datasets: Mapping[str, Activity]
    runs: Mapping[str, Mapping[str, Activity]]
    figures: Activity
    labels: Mapping[str, tuple[int, int]]

    def list_activities(self) -> Iterator[tuple[str, Activity]]:
        """Yield each stage once, with its owner: a dataset, a variant, or nothing."""
        yield from self.datasets.items()
        for variant, stages in self.runs.items():
            for activity in stages.values():
                if activity.owner is None:
                    yield variant, activity
        yield "", self.figures

    def is_running(self) -> bool:
        """Return True if one of the stages runs."""
        return any(activity.state == "running" for _, activity in self.list_activities())

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON."""
        return {
            "experiment": self.experiment,
            "datasets": {name: one.to_json() for name, one in self.datasets.items()},
            "runs": {
                variant: {stage: one.to_json() for stage, one in stages.items()}
                for variant, stages in self.runs.items()
            },
            "figures": self.figures.to_json(),
            "labels": {
                variant: {"done": done, "of": wanted}
                for variant, (done, wanted) in self.labels.items()
            },
        }


def read_overview(experiment: ExperimentRun, now: float) -> Overview:
    """Return the states of the stages of an experiment.

    Args:
        experiment: The experiment.
        now: Seconds since 1970.
    """
    datasets = {one.name: one for run in experiment.runs.values() for one in run.datasets}
    runs = {}
    for variant, run in experiment.runs.items():
        stages = read_run(run, now).items()
        runs[variant] = {s: one for s, one in stages if one.state != "waiting" or run.has_work(s)}
    return Overview(
        experiment.experiment,
        {name: read_dataset(dataset) for name, dataset in datasets.items()},
        runs,
        read_figures(experiment),
        {v: _count(own) for v, run in experiment.runs.items() if (own := _list_own_files(run))},
    )


def _list_own_files(run: Run) -> list[Path]:
    """Return the raw files that jobs of a variant make in its folder."""
    expected = run.dataset.list_expected() if run.dataset and run.dataset.grows else []
    return [path for path in expected if path.is_relative_to(run.folder)]


def _count(files: list[Path]) -> tuple[int, int]:
    return sum(path.is_file() for path in files), len(files)
