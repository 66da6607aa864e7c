"""A project: the folders of experiments and results."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from pipeline_core.config.datasets import DatasetFile
from pipeline_core.config.experiments import BASE, ExperimentFile, name_member
from pipeline_core.config.sections import OF_VARIANT
from pipeline_core.config.yaml_files import find_line, read_yaml, validate_content
from pipeline_core.model_info import ModelInfo
from pipeline_core.project.consistency import require_consistent
from pipeline_core.project.dataset_run import DatasetRun
from pipeline_core.project.run import ExperimentRun, Run, name_datasets
from pipeline_core.registry import Registry

NAME: Final = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
"""Names of datasets, experiments and variants become folders and words of shell commands."""

EVIDENCE: Final = "evidence"
"""Folder with the data behind figures, beside the experiments, for drawing without results."""

_FIGURES: Final = "figures"
"""Folder of the figures, beside those of the variants."""


def check_name(name: str, place: str) -> None:
    """Check that a name can be a folder and a word of a shell command.

    Args:
        name: Name of a dataset or a variant, or one part of an experiment's name.
        place: Where the name is used; the message begins with it.

    Raises:
        ValueError: It cannot.
    """
    if not re.fullmatch(NAME, name):
        raise ValueError(
            f"{place}: {name!r} becomes the name of a folder; use letters, digits, '_', '-' and "
            "'.', which does not come first"
        )


@dataclass(frozen=True)
class Project:
    """The folders of experiments and results, with the plugins.

    Attributes:
        workflows: Folder with `datasets/` and `experiments/`.
        results: Folder for artifacts.
        registry: The plugins.
    """

    workflows: Path
    results: Path
    registry: Registry

    def find_evidence(self, name: str) -> Path:
        """Return the archive with the data behind the figures of an experiment."""
        return self.workflows / EVIDENCE / f"{name}.tar.xz"

    def load_dataset(self, name: str) -> DatasetRun:
        """Load a dataset file.

        Raises:
            ValueError: It is missing or wrong.
        """
        run = self._load_file(name)
        names = enumerate(run.options.part_names)
        return replace(run, mixed=tuple(self._load_part(run.path, i, part) for i, part in names))

    def _load_file(self, name: str) -> DatasetRun:
        """Load a dataset file, but not the parts of a mixture."""
        path = self.workflows / "datasets" / f"{name}.yaml"
        check_name(name, str(path))
        content = read_yaml(path)
        kind: type[DatasetFile] | None = None
        if isinstance(plugin := content.get("plugin"), str):
            kind = self._find_model_info(plugin, path).dataset
        kind = kind or self.registry.manager.hook.dataset_model(content=content) or DatasetFile
        folder = self.results / "datasets" / name
        return DatasetRun(name, path, validate_content(kind, content, path), folder, self.registry)

    def _load_part(self, mixture: Path, number: int, name: str) -> DatasetRun:
        keys = ["parts", str(number), "dataset"]
        where = f"{mixture}:{find_line(mixture, keys)}: {'.'.join(keys)}"
        try:
            run = self._load_file(name)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
        if run.options.part_names:
            raise ValueError(f"{where}: {name!r} is a mixture itself; name its parts here")
        if run.options.plugin is not None:
            raise ValueError(
                f"{where}: the data of {name!r} are made by plugin "
                f"{run.options.plugin!r}; only datasets that the engine imports can be mixed"
            )
        return run

    def load_experiment(self, name: str) -> ExperimentRun:
        """Load an experiment file, such as "chgnet/hfo2", and validate all its variants.

        Raises:
            ValueError: It is missing or wrong, its parts do not fit together, a plugin is unknown
                or broken, or a variant takes samples of another kind than the base variant.
        """
        path = self.workflows / "experiments" / f"{name}.yaml"
        for part in name.split("/"):
            check_name(part, str(path))
        file = self._add_variants(validate_content(ExperimentFile, read_yaml(path), path), path)
        for variant in file.variants:
            _check_variant(variant, path)
        members = file.list_members()
        runs = {m: self._run(name, path, file, *place) for m, place in members.items()}
        for run in runs.values():
            require_consistent(run, path)
        runs = {one: _find_start(run, runs, members[one], path) for one, run in runs.items()}
        base, info = runs[BASE], runs[BASE].model_info
        if file.learn is not None:
            find = self.registry.select_hook("variant_dataset", info.name)
            found = {one: find(run=run, base=base) for one, run in runs.items()}
            runs = {n: replace(run, dataset=found[n] or run.dataset) for n, run in runs.items()}
        folder = self.results / name / _FIGURES
        shared = _join_committees(_share_artifacts(runs), members)
        return ExperimentRun(name, path, file, info, shared, self.registry, folder)

    def _add_variants(self, file: ExperimentFile, path: Path) -> ExperimentFile:
        """Return an experiment with the variants that a plugin makes of its section `learn`."""
        if file.learn is None:
            return file
        info = self._find_model_info(file.plugin, path)
        added = self.registry.select_hook("variants", info.name)(file=file, path=path)
        if added is None:
            raise ValueError(
                f"{path}: learn: no installed plugin learns actively; install one, or remove the "
                "section"
            )
        return file.model_copy(update={"variants": {**added, **file.variants}})

    def run(self, experiment: str, variant: str = BASE) -> Run:
        """Load one variant of an experiment.

        Raises:
            ValueError: As `load_experiment`, or there is no such variant.
        """
        return self.load_experiment(experiment).run(variant)

    def _find_model_info(
        self, plugin: str, path: Path, place: Sequence[str] = ("plugin",)
    ) -> ModelInfo:
        try:
            return self.registry.get_model_info(plugin)
        except ValueError as error:
            raise ValueError(f"{_locate(path, place)}: {error}") from None

    def _run(self, name: str, path: Path, file: ExperimentFile, variant: str, number: int) -> Run:
        """Load a member of the committee of a variant; the first member is the variant itself."""
        chosen, member = file.make_member(variant, number), name_member(variant, number)
        overridden = file.variants[variant].model_fields_set if variant != BASE else set()

        def locate_key(key: str) -> tuple[str, ...]:
            return ("variants", variant, key) if key in overridden else (key,)

        info = self._find_model_info(chosen.plugin, path, locate_key("plugin"))
        base = self._find_model_info(file.plugin, path)
        if info.data_kind != base.data_kind:
            raise ValueError(
                f"{_locate(path, locate_key('plugin'))}: {info.name!r} takes samples of the kind "
                f"{info.data_kind!r}, but {base.name!r}, the plugin of the experiment, those of "
                f"the kind {base.data_kind!r}; compare models of one kind"
            )

        def validate(key: str, content: Any) -> BaseModel:
            return validate_content(info.section_models[key], content, path, locate_key(key))

        try:
            sections = {key: validate(key, getattr(chosen, key)) for key in info.section_models}
        except ValueError as error:
            if chosen.plugin == file.plugin:
                raise
            reader = f"as plugin {info.name!r} of variant {variant!r} reads it"
            raise ValueError(f"{error} ({reader})") from None
        data = None
        if chosen.dataset:
            data = self._load_named(chosen.dataset, path, locate_key("dataset"))
        folder = self.results / name / member
        return Run(
            experiment=name,
            variant=member,
            label=member,
            file=chosen,
            model_info=info,
            dataset=data,
            sections=sections,
            registry=self.registry,
            folder=folder,
            graph=folder / "graph.h5",
            partition=folder / "partition.h5",
            model=folder / "model.pt",
            further={
                one: self._load_named(one, path, locate_key(section))
                for one, section in name_datasets(sections).items()
            },
        )

    def _load_named(self, name: str, path: Path, place: Sequence[str]) -> DatasetRun:
        """Load a dataset; if there is no such file, name the experiment that refers to it."""
        try:
            return self.load_dataset(name)
        except ValueError as error:
            existing = {file.stem for file in (self.workflows / "datasets").glob("*.yaml")}
            if name in existing:
                raise
            raise ValueError(f"{_locate(path, place)}: {error}") from None


def _check_variant(variant: str, path: Path) -> None:
    place = _locate(path, ["variants", variant])
    check_name(variant, place)
    if variant == _FIGURES:
        raise ValueError(
            f"{place}: no variant can be called {variant!r}, the folder of the figures"
        )


def _find_start(run: Run, runs: Mapping[str, Run], place_of: tuple[str, int], path: Path) -> Run:
    """Return a run with the model of the variant that its training starts from.

    A member of a committee starts from the member of the same number, if there is one.
    """
    variant, number = place_of
    train = run.sections["train"]
    start = getattr(train, "start_from", None)
    if start is None or not start.startswith(OF_VARIANT):
        return run
    others = {name: other.model for name, other in runs.items() if name != run.variant}
    name = start.removeprefix(OF_VARIANT)
    if number > 1 and name != variant and (twin := name_member(name, number)) in others:
        name = twin
    if name not in others:
        keys = ["train", "start_from"]
        place = keys if variant == BASE else ["variants", variant, *keys]
        raise ValueError(
            f"{_locate(path, place)}: {start!r} is not another variant of the experiment; others: "
            f"{', '.join(others) or 'none'}"
        )
    resolved = train.model_copy(update={"start_from": str(others[name])})
    return replace(run, sections={**run.sections, "train": resolved})


def _share_artifacts(runs: Mapping[str, Run]) -> dict[str, Run]:
    """Return the variants with shared artifacts and labels filled in."""
    models = {run.model_info.name for run in runs.values()}
    base_label = runs[BASE].model_info.name if len(models) == len(runs) > 1 else BASE
    return {
        variant: replace(
            run,
            label=base_label if variant == BASE else variant,
            graph=_find_owner(run, runs.values(), "graph").graph,
            partition=_find_owner(run, runs.values(), "graph", "partition").partition,
        )
        for variant, run in runs.items()
    }


def _join_committees(
    runs: Mapping[str, Run], members: Mapping[str, tuple[str, int]]
) -> dict[str, Run]:
    """Return the runs, the first member of each committee with the others."""
    others: dict[str, list[Run]] = {variant: [] for variant in runs}
    for name, (variant, number) in members.items():
        if number > 1:
            others[variant].append(runs[name])
    return {name: replace(run, members=tuple(others[name])) for name, run in runs.items()}


def _find_owner(run: Run, runs: Iterable[Run], *stages: str) -> Run:
    """Return the first run whose artifacts of `stages` certainly equal those of `run`."""
    return next(
        other
        for other in runs
        if other.dataset == run.dataset
        and all(other.list_causes(s) == run.list_causes(s) for s in stages)
    )


def _locate(path: Path, keys: Sequence[str]) -> str:
    """Return file, line and key, to begin a message."""
    return f"{path}:{find_line(path, keys)}: {'.'.join(keys)}"


def list_experiments(folder: Path) -> list[str]:
    """Return the experiments in the folder of a plugin, as plugin/name."""
    stems = sorted(path.stem for path in folder.glob("*.yaml"))
    return [f"{folder.name}/{stem}" for stem in stems if stem != "expected"]


def list_all_experiments(workflows: Path) -> list[str]:
    """Return the experiments of all plugins, as plugin/name."""
    folders = sorted((workflows / "experiments").glob("*/"))
    return [name for folder in folders for name in list_experiments(folder)]


def explain_missing(experiment: ExperimentRun) -> str | None:
    """Return a message on the raw files of an experiment; None if they can be obtained."""
    datasets = {one.name: one for run in experiment.runs.values() for one in run.datasets}
    try:
        for dataset in datasets.values():
            dataset.find_raw_files()
    except ValueError as error:
        return str(error)
    return None
