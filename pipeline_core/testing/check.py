"""The conformance suite on an installed plugin, without a test module of its own."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest

from pipeline_core.config.experiments import BASE
from pipeline_core.config.yaml_files import read_yaml
from pipeline_core.model_info import ModelInfo
from pipeline_core.project.dataset_run import DatasetRun
from pipeline_core.project.project import Project, list_experiments
from pipeline_core.registry import Plugin, Registry
from pipeline_core.testing import PluginConformance, RunConformance
from pipeline_core.testing.projects import find_example

_SECTIONS: Final = ("model", "graph", "train")
_OPTIONS: Final = ("-q", "--no-header", "-rN", "--tb=short", "--import-mode=importlib")


def check_plugin(project: Project, name: str, experiment: str | None = None) -> bool:
    """Run the suite on a plugin; print a table.

    Args:
        project: The project with the experiments.
        name: Name of the plugin, or of the package that it was installed with.
        experiment: Experiment that gives sections and dataset of the tests; None for one of the
            scale "smoke" in the project, if any: `<model>/smoke`, else the first.

    Returns:
        True if it passes.

    Raises:
        ValueError: No plugin with a model has this name, it cannot be loaded, or it takes data that
            no experiment names.
    """
    infos = _find_models(project, name)
    if experiment is not None and len(infos) > 1:
        raise ValueError(
            f"{name!r} has {len(infos)} models, and {experiment!r} is of one; name one of "
            f"{', '.join(info.name for info in infos)}"
        )
    sources = {
        f"test_{info.name}.py": write_classes(
            list_suites(project.registry, info), info, choose_settings(project, info, experiment)
        )
        for info in infos
    }
    with TemporaryDirectory(prefix="conformance-") as folder:
        # A configuration of its own, so that one in the working directory has no effect.
        (Path(folder) / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        for file, source in sources.items():
            (Path(folder) / file).write_text(source, encoding="utf-8")
        plugins = ["-p", "no:cacheprovider", "-p", "pipeline_core.testing.plugin"]
        place = [f"--basetemp={folder}/runs", f"--rootdir={folder}", folder]
        return pytest.main([*_OPTIONS, *plugins, *place]) == pytest.ExitCode.OK


def _find_models(project: Project, name: str) -> list[ModelInfo]:
    plugins = project.registry.plugins
    chosen = [p for p in plugins if name in (p.name, p.distribution) or _names_model(p, name)]
    for plugin in chosen:
        if plugin.error is not None:
            raise ValueError(
                f"plugin {plugin.name!r} of {plugin.distribution} cannot be loaded: {plugin.error}"
            )
    infos = [plugin.model for plugin in chosen if plugin.model is not None]
    if chosen and not infos:
        raise ValueError(f"{name!r} has no model that the suite could test")
    return infos or [project.registry.get_model_info(name)]


def _names_model(plugin: Plugin, name: str) -> bool:
    return plugin.model is not None and plugin.model.name == name


def choose_settings(
    project: Project, info: ModelInfo, experiment: str | None = None
) -> dict[str, Any]:
    """Return the attributes of the test classes of a model; none for the defaults on an example.

    Raises:
        ValueError: The experiment is of another plugin, or the model takes data of its own and no
            experiment provides some.
    """
    name = experiment or _find_smoke(project, info)
    if name is None:
        if info.dataset is not None:
            raise ValueError(
                f"the model {info.name!r} takes data of its own; name an experiment that has some: "
                f"--experiment {info.name}/NAME"
            )
        return {}
    run = project.run(name, BASE)
    if run.model_info != info:
        other = run.model_info.name
        raise ValueError(
            f"experiment {name!r} is of the model {other!r}; name one of {info.name!r}"
        )
    settings: dict[str, Any] = {key: getattr(run.file, key) for key in _SECTIONS}
    if run.dataset is None:
        settings["dataset"] = None
    elif run.dataset.options.plugin is not None:
        settings["dataset"] = _read_dataset(run.dataset)
    return {key: value for key, value in settings.items() if value != {}}


def _find_smoke(project: Project, info: ModelInfo) -> str | None:
    names = list_experiments(project.workflows / "experiments" / info.name)
    for name in sorted(names, key=lambda name: name != f"{info.name}/smoke"):
        if project.load_experiment(name).file.scale == "smoke":
            return name
    return None


def _read_dataset(dataset: DatasetRun) -> dict[str, Any]:
    """Return the content of a dataset file, with absolute paths of raw files."""
    content = read_yaml(dataset.path)
    folder = dataset.path.parent.resolve()
    for place, pattern in dataset.options.raw_patterns.items():
        *keys, last = (int(key) if key.isdecimal() else key for key in place.split("."))
        target: Any = content
        for key in keys:
            target = target[key]
        target[last] = str(folder / pattern)
    return content


def list_suites(registry: Registry, info: ModelInfo) -> list[type]:
    """Return the classes of the suite that apply to a model."""
    example = find_example(registry, info)
    names = [name.partition(":") for name in (example.suites if example else ())]
    more = [getattr(import_module(module), name) for module, _, name in names]
    return [PluginConformance, *more, RunConformance]


def write_classes(suites: Sequence[type], info: ModelInfo, settings: Mapping[str, Any]) -> str:
    """Return the source of the test classes of a model, with these attributes."""
    attributes = {"plugin": info.name, **settings}
    body = "".join(f"    {key} = {value!r}\n" for key, value in attributes.items())
    return "".join(
        f"from {suite.__module__} import {suite.__name__}\n\n\n"
        f"class Test{suite.__name__.removesuffix('Conformance')}({suite.__name__}):\n{body}\n\n"
        for suite in suites
    )
