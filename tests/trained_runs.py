"""One trained run a plugin: its experiment `smoke`, computed once in a test run, and copied.

Whatever a model is used for needs one that has been trained: evaluation, figures, cards,
calculators, pages of the documentation. The workers of pytest-xdist make each run once, by a lock,
as its documentation shows, and no further than a test asks for, since figures take longer than a
training. What a test changes it changes in a copy. The fixture is `trained_runs`.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import ClassVar

from filelock import FileLock

from pipeline_core.config.experiments import BASE
from pipeline_core.model_info import MAKERS
from pipeline_core.project.project import Project
from pipeline_core.project.run import ExperimentRun, Run
from pipeline_core.project.working_folder import find_template, make_folder
from pipeline_core.report.experiment import INDEX
from pipeline_core.stages.builtin import load_registry
from pipeline_core.testing.projects import call

PLUGINS = ("chgnet", "egnn_esp", "gauge_flows", "htfbr", "mace")
TRAINING = ("graph", "partition", "train")
USE = ("evaluate", "infer")
ARTIFACTS = {stage: name for name, stage in reversed(MAKERS.items())}
"""An artifact of each stage."""


class TrainedRuns:
    """Working folders in which the experiment `smoke` of a plugin has run, without its variants.

    Args:
        folder: Where they are kept; the same for all workers of a test run.
    """

    seconds: ClassVar[float] = 0.0
    """What has been spent on trained runs, or on waiting for them, since it was last taken."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    def take_seconds(cls) -> float:
        """Return the seconds that trained runs took since the last call."""
        taken, cls.seconds = cls.seconds, 0.0
        return taken

    def find(self, plugin: str) -> Project:
        """Return the project of a plugin, to be read and not to be changed."""
        return self._make(plugin, _walk_once)

    def _make(self, plugin: str, compute: Callable[[ExperimentRun], None]) -> Project:
        start = time.monotonic()
        folder = self._folder / plugin
        with FileLock(f"{folder}.lock"):
            if not folder.exists():
                made = folder.with_name(f"{plugin}.part")
                shutil.rmtree(made, ignore_errors=True)  # of a worker that has failed
                write_smoke(made, plugin)
                made.rename(folder)
            project = _open(folder)
            compute(project.load_experiment(f"{plugin}/smoke"))
        TrainedRuns.seconds += time.monotonic() - start
        return project

    def copy(self, plugin: str, folder: Path) -> Project:
        """Copy the project of a plugin into a folder; return it there."""
        source = self.find(plugin)
        shutil.copytree(source.workflows.parent, folder, symlinks=True, dirs_exist_ok=True)
        return _open(folder)

    def find_run(self, plugin: str) -> Run:
        """Return the trained run of a plugin, to be read; what follows a training may be absent."""
        return self._make(plugin, train).run(f"{plugin}/smoke")


def write_smoke(folder: Path, plugin: str, variants: bool = False) -> ExperimentRun:
    """Make a working folder of the experiment `smoke`, with as few epochs as can be.

    Where the folder is one already, its experiment alone is written anew.
    """
    name = f"workflows/experiments/{plugin}/smoke.yaml"
    if not folder.exists():
        make_folder(folder, [f"{plugin}/smoke"], load_registry())
    text = (find_template() / name).read_text(encoding="utf-8")
    if not variants:
        text = text.partition("\nvariants:")[0] + "\n"
    (folder / name).write_text(shorten(text), encoding="utf-8")
    return _open(folder).load_experiment(f"{plugin}/smoke")


def shorten(text: str) -> str:
    """Return an experiment file whose trainings have two epochs: what is learned is not tested."""
    return re.sub(r"\bepochs: *\d+", "epochs: 2", text)


def walk(experiment: ExperimentRun) -> None:
    """Run what has not run of an experiment, from raw data to its use, and draw it."""
    train(experiment)
    for run in experiment.runs.values():
        _compute(run, USE)
    registry = experiment.runs[BASE].registry
    registry.select_hook("draw", experiment.model_info.name)(run=experiment)


def train(experiment: ExperimentRun) -> None:
    """Run what has not run of an experiment, from raw data to trained models."""
    first = experiment.runs[BASE]
    if first.dataset is not None and not first.data.exists():
        call(first, "data")
    for run in experiment.runs.values():
        _compute(run, TRAINING)


def _compute(run: Run, stages: Iterable[str]) -> None:
    for stage in filter(run.has_stage, stages):
        if not getattr(run, ARTIFACTS[stage]).exists():
            call(run, stage)


def _walk_once(experiment: ExperimentRun) -> None:
    if not (experiment.folder / INDEX).exists():
        walk(experiment)


def _open(folder: Path) -> Project:
    return Project(folder / "workflows", folder / "results", load_registry())
