"""Conformance tests of runs: the stages fit together, and training can be interrupted."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pipeline_core.artifacts import store
from pipeline_core.artifacts.samples import SampleFile
from pipeline_core.config.sections import TrainOptions
from pipeline_core.project.project import Project
from pipeline_core.project.run import Run
from pipeline_core.report.experiment import INDEX
from pipeline_core.task import build_task
from pipeline_core.testing.belonging import OnFinishedRun, draw
from pipeline_core.testing.damage import find_silent_flips, list_artifacts
from pipeline_core.testing.projects import EXPERIMENT, call, prepare, write_project
from pipeline_core.training.history import TIMES
from pipeline_core.training.model_file import check_probe, load_model


class RunConformance(OnFinishedRun):
    """Tests of a run from raw data to metrics, and of a training that is resumed."""

    def test_training_writes_a_model_and_its_history(self, trained: Run) -> None:
        """Data, graphs and partition lead to a trained model."""
        lines = [json.loads(line) for line in trained.history.read_text().splitlines()]
        assert lines
        assert trained.model.stat().st_size > 0

    def test_the_model_predicts_after_loading_what_it_predicted_before(self, trained: Run) -> None:
        """A stored model is the trained one."""
        if "task" not in self.list_hooks(trained):
            pytest.skip("the plugin trains and stores the model itself")
        content = load_model(trained.model, trained.model_info)
        module = build_task(trained, content["metadata"]).module
        check_probe(module, content, trained.model)

    def test_evaluation_gives_finite_errors(self, evaluated: Run) -> None:
        """Held-out samples are compared with predictions."""
        assert _list_numbers(json.loads(evaluated.metrics.read_text()))
        assert evaluated.predictions.exists()

    def test_the_trained_model_can_be_used(self, finished: Run) -> None:
        """The stage infer runs: molecular dynamics for potentials."""
        if not finished.has_stage("infer"):
            pytest.skip("the model has no stage 'infer'")
        assert finished.inference.exists()

    def test_its_figures_can_be_drawn(self, project: Project, finished: Run) -> None:
        """The figures are drawn from the artifacts of the run, even if some are missing."""
        draw(project, finished)
        folder = project.load_experiment(finished.experiment).folder
        entries = store.read_json(folder / INDEX)
        assert "summary" in {entry["name"] for entry in entries}
        missing = [n for entry in entries for n in entry["files"] if not (folder / n).is_file()]
        assert not missing, f"not drawn: {', '.join(missing)}"

    def test_a_flipped_bit_is_noticed_or_without_effect(self, finished: Run) -> None:
        """Ten bits of each artifact, one at a time: none changes a number without an error."""
        paths = list_artifacts(finished)
        silent = [line for path in paths for line in find_silent_flips(finished, path)]
        assert not silent, "\n".join(silent)

    def test_the_split_is_respected(self, trained: Run) -> None:
        """The data have training, validation and test samples."""
        if trained.dataset is None:
            pytest.skip("the model needs no dataset")
        with SampleFile(trained.data, "data", ["split"]) as data:
            assert set(np.unique(data.read_column("split"))) == {0, 1, 2}

    def test_a_batch_reads_its_samples_alone(
        self, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A rank reads only the samples of its shares from large files."""
        if "task" not in self.list_hooks(run) or run.dataset is None:
            pytest.skip("the plugin trains the model itself, or needs no dataset")
        monkeypatch.setattr("pipeline_core.artifacts.samples._PRELOAD_BYTES", 0)
        samples = build_task(run).samples("train")
        with SampleFile(run.data, "data", ["split"]) as data:
            split = data.read_column("split")
        own = np.flatnonzero(split == 0)[[1, 0]]
        numbers = _note_reads(monkeypatch, len(split))
        samples.batch([1, 0])
        assert numbers <= set(own.tolist())

    def test_an_interrupted_training_ends_as_if_it_had_not_been(
        self, trained: Run, tmp_path: Path
    ) -> None:
        """Training one epoch, then the rest, gives the same bits as training without a break."""
        if "train" in self.list_hooks(trained):
            pytest.skip("the plugin trains the model itself")
        epochs = trained.get_section("train", TrainOptions).epochs
        for count in (1, epochs):
            resumed = self.copy_run(tmp_path / f"to{count}", tmp_path / "results", count)
            call(resumed, "train")
        (weights, history), (ours, lines) = _read_outcome(trained), _read_outcome(resumed)
        assert history == lines
        assert weights.keys() == ours.keys()
        differing = [name for name, w in weights.items() if not torch.equal(w, ours[name])]
        assert not differing, f"weights differ after resuming: {', '.join(differing)}"

    def copy_run(self, folder: Path, results: Path, epochs: int) -> Run:
        """Return the run of another project, with its own number of epochs, ready to be trained."""
        train = {**self.train, "epochs": epochs}
        sections = {"model": self.model, "graph": self.graph, "train": train}
        project = write_project(folder, self.plugin, sections, self.dataset)
        moved = Project(project.workflows, results, project.registry)
        run = moved.run(f"{self.plugin}/{EXPERIMENT}")
        prepare(run)
        return run

    def list_hooks(self, run: Run) -> tuple[str, ...]:
        """Return the hooks that the plugin implements."""
        plugins = run.registry.plugins
        return next(p.hooks for p in plugins if p.model and p.model.name == self.plugin)


def _note_reads(monkeypatch: pytest.MonkeyPatch, n_samples: int) -> set[int]:
    """Return a set that gets the numbers of all samples that are read from now on."""
    numbers: set[int] = set()

    def wrap(name: str, list_numbers: Callable[..., Iterable[int]]) -> None:
        read = getattr(SampleFile, name)

        def note(file: SampleFile, *arguments: Any) -> Any:
            numbers.update(list_numbers(*arguments))
            return read(file, *arguments)

        monkeypatch.setattr(SampleFile, name, note)

    wrap("read_field", lambda _, index: [int(index)])
    wrap("read_rows", lambda _, index, rows: [int(index)])
    wrap("read_range", range)
    wrap("read_column", lambda _: range(n_samples))
    return numbers


def _read_outcome(run: Run) -> tuple[dict[str, torch.Tensor], list[dict[str, Any]]]:
    lines = [json.loads(line) for line in run.history.read_text().splitlines()]
    history = [{key: v for key, v in line.items() if key not in TIMES} for line in lines]
    return load_model(run.model)["weights"], history


def _list_numbers(content: Any) -> list[float]:
    """Return all numbers of nested JSON."""
    if isinstance(content, dict):
        return [number for value in content.values() for number in _list_numbers(value)]
    if isinstance(content, list):
        return [number for value in content for number in _list_numbers(value)]
    return [float(content)] if isinstance(content, int | float) else []
