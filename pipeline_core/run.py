"""Runs: what is to be computed, validated, and where its files lie.

A `Project` is a folder of dataset and experiment files and a folder of results. It gives three
views: a `DatasetRun` (the data stage), a `Run` (one variant of one experiment: what is trained),
and an `ExperimentRun` (all variants together: what is drawn). Snakemake and the command line take
every path from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from pipeline_core import provenance
from pipeline_core.config.datasets import Dataset, DatasetFile
from pipeline_core.config.experiments import BASE, ExperimentFile, merged
from pipeline_core.config.sections import ENGINE_SECTIONS, FiguresOptions
from pipeline_core.config.yaml_files import line_of, read_yaml, validated
from pipeline_core.model_info import RUN_STAGES, ModelInfo
from pipeline_core.registry import Registry

Options = TypeVar("Options", bound=BaseModel)


@dataclass(frozen=True)
class Project:
    """Where experiments are described and where results go.

    Attributes:
        workflows: Folder with `datasets/` and `experiments/`.
        results: Folder for artifacts.
        registry: The plugins.
    """

    workflows: Path
    results: Path
    registry: Registry

    def dataset(self, name: str) -> DatasetRun:
        """Load a dataset file.

        Raises:
            ValueError: It is missing or wrong.
        """
        path = self.workflows / "datasets" / f"{name}.yaml"
        content = read_yaml(path)
        kind: type[DatasetFile] = Dataset
        if isinstance(plugin := content.get("plugin"), str):
            kind = self._model_info(plugin, path).dataset or Dataset
        return DatasetRun(self, name, path, validated(kind, content, path))

    def experiment(self, name: str) -> ExperimentRun:
        """Load an experiment file, such as "chgnet/hfo2", and validate all its variants.

        Raises:
            ValueError: It is missing or wrong, or its plugin is unknown or broken.
        """
        path = self.workflows / "experiments" / f"{name}.yaml"
        content = read_yaml(path)
        file = validated(ExperimentFile, content, path)
        info = self._model_info(file.plugin, path)
        runs = {
            variant: self._run(name, path, file, info, variant)
            for variant in [BASE, *file.variants]
        }
        return ExperimentRun(self, name, path, file, info, runs)

    def run(self, experiment: str, variant: str = BASE) -> Run:
        """Load one variant of an experiment.

        Raises:
            ValueError: As `experiment`, or there is no such variant.
        """
        runs = self.experiment(experiment).runs
        if variant not in runs:
            raise ValueError(
                f"experiment {experiment!r} has no variant {variant!r}, only {', '.join(runs)}"
            )
        return runs[variant]

    def _model_info(self, plugin: str, path: Path) -> ModelInfo:
        try:
            return self.registry.model_info(plugin)
        except ValueError as error:
            raise ValueError(f"{path}:{line_of(path, ['plugin'])}: plugin: {error}") from None

    def _run(
        self, name: str, path: Path, file: ExperimentFile, info: ModelInfo, variant: str
    ) -> Run:
        override = file.variants.get(variant, {})
        place = ("variants", variant) if variant != BASE else ()
        stray = set(override) - {"model", *RUN_STAGES}
        if stray:
            raise ValueError(
                f"{path}:{line_of(path, [*place, min(stray)])}: {'.'.join([*place, min(stray)])}: "
                f"unknown section; a variant may override model, {', '.join(RUN_STAGES)}"
            )
        models = {"model": info.options, **ENGINE_SECTIONS, **info.sections}
        sections = {}
        for key, model in models.items():
            content = merged(getattr(file, key), override.get(key, {}))
            sections[key] = validated(
                model, content, path, (*place, key) if key in override else (key,)
            )
        data = self.dataset(file.dataset) if file.dataset else None
        return Run(self, name, variant, file, info, data, sections)


@dataclass(frozen=True)
class DatasetRun:
    """A dataset to be imported."""

    project: Project
    name: str
    path: Path
    options: DatasetFile

    @property
    def frames(self) -> Dataset:
        """The options, of a dataset that the engine imports.

        Raises:
            ValueError: A plugin describes its data in its own way but leaves the import to the
                engine.
        """
        if not isinstance(self.options, Dataset):
            raise ValueError(
                f"{self.path}: plugin {self.options.plugin!r} has dataset files of its own but "
                "does not make the data: implement the hook data(run)"
            )
        return self.options

    @property
    def folder(self) -> Path:
        """Folder of its artifacts."""
        return self.project.results / "datasets" / self.name

    @property
    def data(self) -> Path:
        """Samples, splits and reference energies (HDF5)."""
        return self.folder / "data.h5"

    @property
    def report(self) -> Path:
        """What was imported, skipped and found (JSON)."""
        return self.folder / "import.json"

    def provenance(self) -> dict[str, Any]:
        """Record of where an artifact of the data stage comes from."""
        return provenance.record(stage="data", options=self.options.model_dump(mode="json"))


@dataclass(frozen=True)
class Run:
    """One variant of one experiment: the unit that is trained.

    Attributes:
        project: Where it belongs.
        experiment: Name of the experiment, such as "chgnet/hfo2".
        variant: Name of the variant.
        file: The experiment file.
        model_info: The plugin's model.
        dataset: The data; None for a model that needs none.
        sections: Validated options: "model" and one a stage.
        device: "auto", "cpu" or "cuda"; belongs to the machine, so no artifact depends on it.
        metadata: What a trained model says of itself (`Task.metadata`), for a plugin that rebuilds
            it; None before training.
    """

    project: Project
    experiment: str
    variant: str
    file: ExperimentFile
    model_info: ModelInfo
    dataset: DatasetRun | None
    sections: Mapping[str, BaseModel]
    device: str = "auto"
    metadata: Mapping[str, Any] | None = None

    @property
    def folder(self) -> Path:
        """Folder of its artifacts."""
        return self.project.results / self.experiment / self.variant

    @property
    def data(self) -> Path:
        """Input samples (HDF5), of the dataset.

        Raises:
            ValueError: The experiment names no dataset.
        """
        if self.dataset is None:
            raise ValueError(
                f"experiment {self.experiment!r} names no dataset, which plugin "
                f"{self.model_info.name!r} needs here; add the key `dataset`"
            )
        return self.dataset.data

    @property
    def graph(self) -> Path:
        """Structure of each sample (HDF5)."""
        return self._owner("graph").folder / "graph.h5"

    @property
    def partition(self) -> Path:
        """Costs and shares (HDF5)."""
        return self._owner("graph", "partition").folder / "partition.h5"

    @property
    def model(self) -> Path:
        """Trained weights and what is needed to rebuild the model."""
        return self.folder / "model.pt"

    @property
    def history(self) -> Path:
        """One JSON line an epoch."""
        return self.folder / "history.jsonl"

    @property
    def state(self) -> Path:
        """Folder of the training state; no declared output, so that it outlives a killed job."""
        return self.folder / "state"

    @property
    def metrics(self) -> Path:
        """Errors on held-out samples (JSON)."""
        return self.folder / "metrics.json"

    @property
    def predictions(self) -> Path:
        """Predictions beside labels (HDF5)."""
        return self.folder / "predictions.h5"

    @property
    def inference(self) -> Path:
        """What the trained model was used for (HDF5)."""
        return self.folder / "inference.h5"

    @property
    def seed(self) -> int:
        """Seed of everything random in the run."""
        return self.file.seed

    @property
    def options(self) -> BaseModel:
        """The plugin's own options."""
        return self.sections["model"]

    def section(self, stage: str, kind: type[Options]) -> Options:
        """Return the section of a stage, checked to be of the type that the caller works with.

        Raises:
            ValueError: The plugin brings its own options for this stage but leaves the stage to
                the engine.
        """
        options = self.sections[stage]
        if not isinstance(options, kind):
            raise ValueError(
                f"plugin {self.model_info.name!r} brings its own options for the stage {stage!r} "
                f"({type(options).__name__}) but not the stage: implement the hook {stage}(run), "
                f"or derive the options from {kind.__name__}"
            )
        return options

    def provenance(self, stage: str) -> dict[str, Any]:
        """Record of where an artifact of this run comes from."""
        return provenance.record(
            stage=stage,
            experiment=self.experiment,
            variant=self.variant,
            plugin=self.model_info.name,
            fingerprint=self.project.registry.fingerprint(self.model_info.name),
            seed=self.seed,
            options=self.params(stage),
        )

    def params(self, stage: str) -> dict[str, Any]:
        """The part of the experiment that a stage depends on."""
        keys = {"graph": ["graph"], "partition": ["partition", "model"], "figures": ["figures"]}
        return {
            key: self.sections[key].model_dump(mode="json")
            for key in keys.get(stage, [stage, "model"])
        }

    def _owner(self, *stages: str) -> Run:
        """The first variant whose sections for `stages` equal ours: its artifact is shared."""
        for run in self.project.experiment(self.experiment).runs.values():
            if all(run.params(stage) == self.params(stage) for stage in stages):
                return run
        raise AssertionError("a run shares at least with itself")


@dataclass(frozen=True)
class ExperimentRun:
    """All variants of an experiment."""

    project: Project
    experiment: str
    path: Path
    file: ExperimentFile
    model_info: ModelInfo
    runs: Mapping[str, Run]

    @property
    def folder(self) -> Path:
        """Folder of the figures."""
        return self.project.results / self.experiment / "figures"

    @property
    def reproduction(self) -> Path:
        """The paper's numbers beside ours (JSON)."""
        return self.folder / "reproduction.json"

    @cached_property
    def options(self) -> FiguresOptions:
        """The figures section."""
        return self.runs[BASE].section("figures", FiguresOptions)
