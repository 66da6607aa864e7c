"""A small project to test a plugin on: alloys with labels that ASE computes, and one experiment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

import pytest
import yaml
from ase.io import write
from pydantic import BaseModel

from pipeline_atoms.config.inference import InferOptions
from pipeline_atoms.testing.example_data import make_alloys
from pipeline_core.builtin import load_registry
from pipeline_core.config.experiments import BASE
from pipeline_core.config.sections import TrainOptions
from pipeline_core.model_info import ModelInfo
from pipeline_core.project import Project
from pipeline_core.run import Run

EXPERIMENT: Final = "conformance"
_DATA: Final = "samples"
STAGES: Final = ("data", "graph", "partition")

ALLOYS: Final[Mapping[str, Any]] = {
    "description": "Alloys of copper, silver and aluminium, labelled by effective-medium theory",
    "citation": "Jacobsen, Stoltze and Nørskov, Surf. Sci. 366, 394 (1996), as in ASE",
    "sources": [{"path": "alloys.extxyz"}],
    "split": {"val": 0.2, "test": 0.2},
}
"""The dataset file of structures that are written beside it."""
_TRAIN: Final = {
    "epochs": 2,
    "batch_size": 3,
    "loss": {"energy": {}, "forces": {}, "stress": {"unit": "GPa"}},
}
_DYNAMICS: Final = {"md": [{"name": "short", "steps": 5, "every": 1}]}


def write_project(
    folder: Path,
    plugin: str,
    sections: Mapping[str, Mapping[str, Any]],
    dataset: Mapping[str, Any] | None = ALLOYS,
) -> Project:
    """Write data, dataset and experiment; return the project, with the plugins of the environment.

    Args:
        folder: Where to.
        plugin: Name of the model.
        sections: Sections of the experiment that differ from their defaults.
        dataset: Content of the dataset file; None for a model that needs no dataset. With alloys
            come sections for training on them and for molecular dynamics.
    """
    registry = load_registry()
    datasets, experiments = folder / "workflows/datasets", folder / "workflows/experiments" / plugin
    for path in (datasets, experiments):
        path.mkdir(parents=True)
    content = {
        "description": "Conformance of a plugin",
        "plugin": plugin,
        "scale": "smoke",
        "figures": {"formats": ["png"]},
        **{name: dict(section) for name, section in sections.items()},
    }
    if dataset is not None:
        content["dataset"] = _DATA
        text = yaml.safe_dump(dict(dataset))
        (datasets / f"{_DATA}.yaml").write_text(text, encoding="utf-8")
    if dataset == ALLOYS:
        write(datasets / "alloys.extxyz", make_alloys(15))
        defaults = _list_alloy_sections(registry.get_model_info(plugin))
        content |= {n: {**section, **sections.get(n, {})} for n, section in defaults.items()}
    path = experiments / f"{EXPERIMENT}.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return Project(folder / "workflows", folder / "results", registry)


def _list_alloy_sections(info: ModelInfo) -> dict[str, dict[str, Any]]:
    """Return what of the engine's own training and dynamics a model takes part in."""
    own: dict[str, tuple[type[BaseModel], Mapping[str, Any]]] = {
        "train": (TrainOptions, _TRAIN),
        "infer": (InferOptions, _DYNAMICS),
    }
    models = info.section_models
    return {name: dict(s) for name, (kind, s) in own.items() if issubclass(models[name], kind)}


def call(run: Run, stage: str) -> Mapping[str, Any]:
    """Run a stage of a run as its command does."""
    registry = run.registry
    if stage == "data":
        assert run.dataset is not None
        summary = registry.select_hook("data", run.dataset.options.plugin)(run=run.dataset)
    else:
        summary = registry.select_hook(stage, run.model_info.name)(run=run)
    assert isinstance(summary, Mapping), f"{stage}(run) returned {summary!r}, expected a mapping"
    return summary


def prepare(run: Run) -> None:
    """Run the stages before the training, as far as the run has them."""
    for stage in STAGES:
        if run.has_stage(stage) and (stage != "data" or run.dataset is not None):
            call(run, stage)


class OnProject:
    """Base of the classes that work on a project."""

    plugin: ClassVar[str]
    """Name of the model."""
    model: ClassVar[Mapping[str, Any]] = {}
    """Section `model` of the experiment, as far as it differs from the defaults."""
    graph: ClassVar[Mapping[str, Any]] = {}
    """Section `graph`."""
    train: ClassVar[Mapping[str, Any]] = {}
    """Section `train`; for alloys two epochs on energy, forces and stress unless it says more."""
    infer: ClassVar[Mapping[str, Any]] = {}
    """Section `infer`, such as the head of a model with several; for alloys with short dynamics."""
    dataset: ClassVar[Mapping[str, Any] | None] = ALLOYS
    """Content of the dataset file of a plugin that makes its own data; None for a model that needs
    none."""
    other: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """What to change in the sections for another graph; empty for a smaller `graph.cutoff`."""

    @pytest.fixture(scope="class")
    @classmethod
    def project(cls, tmp_path_factory: pytest.TempPathFactory) -> Project:
        """A project with the experiment `<plugin>/conformance`, in which nothing has run."""
        sections = {"model": cls.model, "graph": cls.graph, "train": cls.train}
        sections |= {"infer": cls.infer} if cls.infer else {}
        folder = tmp_path_factory.mktemp(cls.plugin)
        return write_project(folder, cls.plugin, sections, cls.dataset)

    @pytest.fixture(scope="class")
    @classmethod
    def run(cls, project: Project) -> Run:
        """The run of that experiment, ready to be trained."""
        run = project.run(f"{cls.plugin}/{EXPERIMENT}", BASE)
        prepare(run)
        return run
