"""A small project to test a plugin on: data and one experiment."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, TypeAlias

import pytest
import yaml

from pipeline_core.config.experiments import BASE
from pipeline_core.hookspecs import Example
from pipeline_core.model_info import ModelInfo
from pipeline_core.project.project import Project
from pipeline_core.project.run import Run
from pipeline_core.registry import Registry
from pipeline_core.stages.builtin import load_registry

EXPERIMENT: Final = "conformance"
_DATA: Final = "samples"
STAGES: Final = ("data", "graph", "partition")

EXAMPLE: Final = "example"
"""In place of a dataset file: the test data that a plugin provides for its kind of data."""
Content: TypeAlias = Mapping[str, Any] | Literal["example"] | None


def write_project(
    folder: Path,
    plugin: str,
    sections: Mapping[str, Mapping[str, Any]],
    dataset: Content = EXAMPLE,
) -> Project:
    """Write data, dataset and experiment; return the project, with the plugins of the environment.

    Args:
        folder: Folder of the project.
        plugin: Name of the model.
        sections: Sections of the experiment that differ from their defaults.
        dataset: Content of the dataset file; None for a model that needs no dataset; "example" for
            the test data that a plugin provides for its kind, with sections for training on them.

    Raises:
        ValueError: No plugin provides an example.
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
    if dataset == EXAMPLE:
        info = registry.get_model_info(plugin)
        example = find_example(registry, info)
        if example is None:
            raise ValueError(
                f"there is no example of the kind {info.data_kind!r}; name a dataset for {plugin!r}"
            )
        dataset = example.dataset
        for name, text in example.files.items():
            (datasets / name).write_text(text, encoding="utf-8")
        content |= {n: {**s, **sections.get(n, {})} for n, s in example.sections.items()}
    if dataset is not None:
        content["dataset"] = _DATA
        text = yaml.safe_dump(dict(dataset))
        (datasets / f"{_DATA}.yaml").write_text(text, encoding="utf-8")
    path = experiments / f"{EXPERIMENT}.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return Project(folder / "workflows", folder / "results", registry)


def find_example(registry: Registry, info: ModelInfo) -> Example | None:
    """Return small test data for a model; None if no plugin has some for its kind of data."""
    found: Example | None = registry.select_hook("example", info.name)(info=info)
    return found


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
    """Run the stages of a run before its training."""
    for stage in STAGES:
        if run.has_stage(stage) and (stage != "data" or run.dataset is not None):
            call(run, stage)


class OnProject:
    """Base of the classes that work on a project."""

    plugin: ClassVar[str]
    """Name of the model."""
    model: ClassVar[Mapping[str, Any]] = {}
    """Options in the section `model` that differ from their defaults."""
    graph: ClassVar[Mapping[str, Any]] = {}
    """Section `graph`."""
    train: ClassVar[Mapping[str, Any]] = {}
    """Section `train`; it overrides options of the example."""
    infer: ClassVar[Mapping[str, Any]] = {}
    """Section `infer`, such as the head of a model with several; overrides that of the example."""
    dataset: ClassVar[Content] = EXAMPLE
    """Content of the dataset file of a plugin that makes its own data; None for a model that needs
    none."""
    other: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Changes of the sections that give another graph; empty for a smaller `graph.cutoff`."""

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
