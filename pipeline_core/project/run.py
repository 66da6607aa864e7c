"""Runs: validated experiments with their options and the paths of their files.

A `Project` reads its files into three records: a `DatasetRun` (the data stage, `dataset_run.py`), a
`Run` (one variant of one experiment, the unit of training), and an `ExperimentRun` (all variants
together, the unit of drawing). They are complete: nothing is read again. Snakemake and the command
line take every path from them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel

from pipeline_core.artifacts import provenance
from pipeline_core.artifacts.extracts import Extracts
from pipeline_core.artifacts.seals import identify
from pipeline_core.config.experiments import BASE, ExperimentFile
from pipeline_core.config.sections import PUBLISHED, FiguresOptions, TrainOptions
from pipeline_core.model_info import MAKERS, ModelInfo
from pipeline_core.project.dataset_run import DatasetRun, Dependencies
from pipeline_core.registry import Registry

# Plugins import all records from here.
__all__ = ["READS", "DatasetRun", "Dependencies", "ExperimentRun", "Run", "name_datasets"]

Options = TypeVar("Options", bound=BaseModel)
Content = TypeVar("Content")

READS: Final = {
    "graph": ("data",),
    "partition": ("data", "graph"),
    "train": ("data", "graph", "partition"),
    "evaluate": ("data", "graph", "model"),
    "infer": ("data", "graph", "model"),
    "profile": ("data", "graph", "model"),
    "figures": ("history", "metrics", "predictions", "inference"),
}
"""Artifacts of a run that each stage reads; `figures` reads the same of all variants."""


@dataclass(frozen=True)
class Run:
    """One variant of one experiment: the unit that is trained.

    Attributes:
        experiment: Name of the experiment, such as "chgnet/hfo2".
        variant: Name of the variant.
        label: Its name in figures: its variant, or its model for the base where each variant has
        another model.
        file: The experiment file with the overrides of the variant, and without variants.
        model_info: The plugin's model.
        dataset: The data; None for a model that needs none.
        sections: Validated options: "model" and one a stage.
        registry: The plugins.
        folder: Folder of its artifacts.
        graph: Structure of each sample (HDF5), in the folder of the first variant that shares it.
        partition: Costs and shares (HDF5), in the folder of the first variant that shares it.
        model: Trained weights and the data to rebuild the model.
        device: "auto", "cpu" or "cuda"; belongs to the machine, so no artifact depends on it.
        is_finished: True if the training takes no further step and writes the best model of its
            saved state.
        metadata: Metadata of a trained model (`Task.metadata`), for a plugin that rebuilds it or
            starts from it; None for a new one.
        further: Datasets besides `dataset` that sections name, by name.
        members: The other members of the committee, for its first member; else empty.
        extracts: Reduced data of large files for figures, where they are kept or to be kept; None
            to read the files themselves.
    """

    experiment: str
    variant: str
    label: str
    file: ExperimentFile
    model_info: ModelInfo
    dataset: DatasetRun | None
    sections: Mapping[str, BaseModel]
    registry: Registry
    folder: Path
    graph: Path
    partition: Path
    model: Path
    device: str = "auto"
    is_finished: bool = False
    metadata: Mapping[str, Any] | None = None
    further: Mapping[str, DatasetRun] = field(default_factory=dict)
    members: tuple[Run, ...] = ()
    extracts: Extracts | None = None

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
    def history(self) -> Path:
        """One JSON line an epoch."""
        return self.folder / "history.jsonl"

    @property
    def state(self) -> Path:
        """Folder of the checkpoints; not a declared output, so that it outlives a killed job."""
        return self.folder / "state"

    @property
    def metrics(self) -> Path:
        """Errors on held-out samples (JSON)."""
        return self.folder / "metrics.json"

    @property
    def predictions(self) -> Path:
        """Predictions and labels (HDF5)."""
        return self.folder / "predictions.h5"

    @property
    def inference(self) -> Path:
        """Results of using the trained model (HDF5)."""
        return self.folder / "inference.h5"

    @property
    def profile(self) -> Path:
        """Time and memory of training steps, and projections from them (JSON)."""
        return self.folder / "profile.json"

    @property
    def seed(self) -> int:
        """Seed of everything random in the run."""
        return self.file.seed

    @property
    def ranks(self) -> int:
        """Processes that the workflow trains on, unless its profile sets another number.

        They belong to the machine, so no artifact depends on them.
        """
        return self.file.ranks

    @property
    def planned_epochs(self) -> int | None:
        """Epochs of the training; None if the plugin does not count them or time ends it."""
        options = self.sections["train"]
        if isinstance(options, TrainOptions):
            return options.planned_epochs
        return getattr(options, "epochs", None)

    @property
    def options(self) -> BaseModel:
        """The plugin's own options."""
        return self.sections["model"]

    @property
    def datasets(self) -> list[DatasetRun]:
        """All datasets that a stage reads."""
        own = [] if self.dataset is None else [self.dataset]
        return [*own, *(one for one in self.further.values() if one not in own)]

    def list_further(self, stage: str) -> list[DatasetRun]:
        """Return the datasets besides its own that a stage reads."""
        return [self.further[name] for name in _list_names(self.sections, stage)]

    def extract(self, name: str, compute: Callable[[], Content]) -> Content:
        """Reduce large files of the run for figures, or read the kept extract."""
        return self.extracts.get(f"{self.variant}/{name}", compute) if self.extracts else compute()

    def get_section(self, stage: str, kind: type[Options]) -> Options:
        """Return the section of a stage, checked to be of the type that the caller needs.

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

    def has_stage(self, stage: str) -> bool:
        """Return True if the model has a stage."""
        return stage not in self.model_info.without

    def has_work(self, stage: str) -> bool:
        """Return True if the workflow is to run a stage before figures.

        The stage `profile`, and an `infer` that is not the plugin's own, are left out where their
        section requests nothing; results of an earlier `infer` are updated nevertheless.
        """
        made = self.inference.exists() or not self._is_default("infer")
        may_idle = stage == "profile" or (stage == "infer" and not made)
        is_needed = not may_idle or bool(getattr(self.sections[stage], "has_work", True))
        return self.has_stage(stage) and is_needed

    def list_artifacts(self, stage: str) -> list[str]:
        """Return the artifacts of the run that a stage reads, of the stages that have work."""
        return [name for name in READS[stage] if self.has_work(MAKERS.get(name, ""))]

    def name_command(self, stage: str) -> str:
        """Return the command that runs a stage by hand."""
        return f"pipeline-core {stage} --experiment {self.experiment} --variant {self.variant}"

    def list_inputs(self, stage: str) -> dict[str, Path]:
        """Return the files that a stage reads: artifacts by kind, others by name."""
        artifacts = [name for name in self.list_artifacts(stage) if name != "data"]
        inputs = {name: getattr(self, name) for name in artifacts}
        if self.dataset is not None and "data" in READS[stage]:
            inputs = {"data": self.dataset.data, **inputs}
        start = getattr(self.sections["train"], "start_from", None) if stage == "train" else None
        if start is not None and not start.startswith(PUBLISHED):
            inputs["start_from"] = Path(start)
        inputs |= {f"dataset {other.name}": other.data for other in self.list_further(stage)}
        if stage == "infer":
            files = getattr(self.sections["infer"], "files", [])
            inputs |= {f"file {Path(file).name}": Path(file) for file in files}
        if self.members and stage in ("evaluate", "infer"):
            inputs |= {f"model of {one.variant}": one.model for one in self.members}
            inputs |= {"metrics": self.metrics} if stage == "infer" else {}
        return inputs

    def list_awaited(self, stage: str) -> list[Path]:
        """Return files that a stage waits for besides its inputs: predictions of a committee.

        They are identified by the models of the members, which are inputs.
        """
        return [one.predictions for one in self.members] if stage == "evaluate" else []

    @property
    def has_default_graph(self) -> bool:
        """True if the graph is the default of its kind of data: made from data and section only."""
        return self._is_default("graph")

    def _is_default(self, stage: str) -> bool:
        """Return True if a stage is done as for other models of the kind of data."""
        plugins = [p for p in self.registry.plugins if p.model in (None, self.model_info)]
        return all(stage not in {*plugin.hooks} - {*plugin.defaults} for plugin in plugins)

    def list_causes(self, stage: str) -> dict[str, Any]:
        """Return the facts that determine the artifacts of a stage, besides its inputs."""
        params = self.select_params(stage)
        train = params.get("train", {})
        for key in ("profile", *(["start_from"] if _names_file(train) else [])):
            train.pop(key, None)
        seed = None if stage == "graph" and self.has_default_graph else self.seed
        return {"plugin": self.model_info.name, "seed": seed, **params}

    def make_provenance(self, stage: str) -> dict[str, Any]:
        """Provenance record of an artifact of this run."""
        recorded = provenance.AT_BEGIN.get()
        paths = {name: path for name, path in self.list_inputs(stage).items() if path.is_file()}
        return provenance.make_record(
            inputs={name: recorded.get(path) or identify(path) for name, path in paths.items()},
            stage=stage,
            experiment=self.experiment,
            variant=self.variant,
            plugin=self.model_info.name,
            **self.registry.identify(self.model_info.name),
            seed=self.seed,
            options=self.select_params(stage),
        )

    def select_params(self, stage: str) -> dict[str, Any]:
        """The part of the experiment that a stage depends on."""
        keys = {
            "graph": ["graph"],
            "partition": ["partition", "model"],
            "profile": ["profile", "partition", "train", "model"],
            "figures": ["figures"],
        }
        params = {
            key: self.sections[key].model_dump(mode="json")
            for key in keys.get(stage, [stage, "model"])
        }
        if self.members and stage in ("evaluate", "infer"):
            params["members"] = {one.variant: one.seed for one in self.members}
        return params


def _names_file(train: Mapping[str, Any]) -> bool:
    """Return True if a training starts from a file, which counts by content and not by path."""
    start = train.get("start_from")
    return start is not None and not start.startswith(PUBLISHED)


def name_datasets(sections: Mapping[str, BaseModel]) -> dict[str, str]:
    """Return the names of all datasets that sections name, each with its first section."""
    names: dict[str, str] = {}
    for section in sections:
        for name in _list_names(sections, section):
            names.setdefault(name, section)
    return names


def _list_names(sections: Mapping[str, BaseModel], stage: str) -> list[str]:
    names: list[str] = getattr(sections.get(stage), "datasets", [])
    return names


@dataclass(frozen=True)
class ExperimentRun:
    """All variants of an experiment.

    Attributes:
        experiment: Its name.
        path: Its file.
        file: Content of the file.
        model_info: The model of the base variant.
        runs: The variants, the base first.
        registry: The plugins.
        folder: Folder of the figures.
    """

    experiment: str
    path: Path
    file: ExperimentFile
    model_info: ModelInfo
    runs: Mapping[str, Run]
    registry: Registry
    folder: Path

    @property
    def reproduction(self) -> Path:
        """The paper's numbers beside ours (JSON)."""
        return self.folder / "reproduction.json"

    @cached_property
    def options(self) -> FiguresOptions:
        """The figures section of the base variant."""
        return self.runs[BASE].get_section("figures", FiguresOptions)

    @property
    def models(self) -> list[ModelInfo]:
        """The models of all variants, each once, the base model first."""
        return list({run.model_info.name: run.model_info for run in self.runs.values()}.values())

    @property
    def datasets(self) -> list[DatasetRun]:
        """The datasets of all variants, each once, the base dataset first."""
        datasets = [run.dataset for run in self.runs.values() if run.dataset is not None]
        return list({dataset.name: dataset for dataset in datasets}.values())

    def extract(self, name: str, compute: Callable[[], Content]) -> Content:
        """Reduce large files of all runs for figures, or read the kept extract."""
        extracts = next(iter(self.runs.values())).extracts
        variants = ", ".join(self.runs)  # figures of one plugin among several show some of the runs
        return extracts.get(f"{name} of {variants}", compute) if extracts else compute()

    def run(self, variant: str) -> Run:
        """Return a variant.

        Raises:
            ValueError: There is no such variant.
        """
        if variant not in self.runs:
            raise ValueError(
                f"experiment {self.experiment!r} has no variant {variant!r}, "
                f"only {', '.join(self.runs)}"
            )
        return self.runs[variant]

    def select_plugin(self, plugin: str) -> ExperimentRun:
        """Return the experiment with only the variants of this plugin."""
        runs = {v: run for v, run in self.runs.items() if run.model_info.name == plugin}
        return replace(self, model_info=self.registry.get_model_info(plugin), runs=runs)
