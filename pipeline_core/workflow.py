"""What the rules ask of the engine: the inputs, parameters and targets of each job.

Rules hold no Python: they call the methods of one `Plan`. It takes every path from the same
`Project` that the command line uses, so both agree on where an artifact lies. Nothing heavy is
imported here: a job on a cluster reads the Snakefile again.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterable
from functools import cached_property, wraps
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn, ParamSpec, TypeVar

from pipeline_core.builtin import load_registry
from pipeline_core.config.profile import ProfileOptions
from pipeline_core.config.raw_files import hash_raw_files
from pipeline_core.config.sections import PartitionOptions
from pipeline_core.config.variables import find_misspelled
from pipeline_core.config.workflow import CONFIG, WorkflowOptions
from pipeline_core.config.yaml_files import read_yaml, validate_content
from pipeline_core.dataset_run import DatasetRun
from pipeline_core.importing.sources import find_beside, identify_readers
from pipeline_core.model_info import STAGES
from pipeline_core.project import (
    EVIDENCE,
    NAME,
    Project,
    explain_missing,
    list_all_experiments,
    list_experiments,
)
from pipeline_core.registry import Registry
from pipeline_core.run import ExperimentRun, Run
from pipeline_core.working_folder import SCHEMA, check_folder

if TYPE_CHECKING:
    from pipeline_core.cli.overview import Overview

THREADS: Final = {"train": 8, "evaluate": 4, "infer": 4, "profile": 4}
"""Cores of a stage that gains from several; Snakemake takes fewer where there are fewer."""

Paths = Callable[[Any], list[str]]
"""What Snakemake wants as input: a function of a job's wildcards."""

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")


def end_with_message(answer: Callable[Arguments, Answer]) -> Callable[Arguments, Answer]:
    """Make a function that Snakemake calls end it with the message alone where a user is wrong.

    Snakemake prints what any `Exception` of such a function says between a header and a traceback.
    """

    @wraps(answer)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Answer:
        try:
            return answer(*args, **kwargs)
        except ValueError as error:
            raise SystemExit(f"error: {error}") from None

    return call


class Plan:
    """Inputs, parameters and targets, as functions of the wildcards of a job.

    Args:
        config: The configuration that Snakemake has read.
        registry: The plugins; those of the environment if None.

    Raises:
        SystemExit: The configuration has a wrong key or value, or a newer package has made the
            folder; so do all methods where an experiment or a dataset is wrong.

    Attributes:
        latest: The plan that was made last in this process: that of the Snakefile.
    """

    NAME = NAME
    RULES: Final = (*STAGES, "download", "papers", "failures")
    latest: ClassVar[Plan | None] = None

    @end_with_message
    def __init__(self, config: dict[str, Any], registry: Registry | None = None) -> None:
        if (path := Path("workflows") / CONFIG).exists():
            read_yaml(path)  # which refuses what Snakemake reads otherwise than it is written
        note = check_folder(Path())
        if note and note.schema_version < SCHEMA:
            sys.stderr.write(
                "an older pipeline-core has made this folder: it works on; "
                "`pipeline-core init --upgrade` brings what is new\n"
            )
        for sentence in find_misspelled():
            sys.stderr.write(f"{sentence}\n")
        self.options = validate_content(WorkflowOptions, config, Path("workflows/config.yaml"))
        self.project = Project(
            Path(self.options.workflows), Path(self.options.results), registry or load_registry()
        )
        self._experiments: dict[str, ExperimentRun] = {}  # each is read once, for all its jobs
        self.arguments = f"{self._workflows} --results {quote(self.options.results)}"
        self.drawing = f"{self.arguments}{' --evidence' if self.options.evidence else ''}"
        Plan.latest = self

    def replace_report(self) -> None:
        """Let `snakemake --report FILE.html` write the engine's page."""
        from pipeline_core.report.reporter import replace_reporter

        replace_reporter(self.options.experiments)

    @property
    def shell_prefix(self) -> str:
        """What goes before each shell command: strict mode, this environment's programs first."""
        programs = quote(str(Path(sys.executable).parent))
        return f'set -euo pipefail; export PATH={programs}:"$PATH"; '

    @property
    def _workflows(self) -> str:
        return f"--workflows {quote(self.options.workflows)}"

    def container(self, wildcards: Any) -> str | None:
        """Return the image of a job."""
        return self.options.container

    @end_with_message
    def raw_files(self, wildcards: Any) -> list[str]:
        """Return the raw files of a dataset, and what is read with them."""
        dataset = self.project.load_dataset(wildcards.dataset)
        files = {**dataset.find_raw_files(), **find_beside(dataset)}
        return list(map(str, files.values()))

    @end_with_message
    def dataset(self, wildcards: Any) -> str:
        """Return what the data stage depends on, apart from raw files.

        That is the content of the dataset file, less what has no effect on the samples, that of raw
        files, and fingerprints of the plugins that make or read the data.
        """
        dataset = self.project.load_dataset(wildcards.dataset)
        params = {**dataset.select_params(), "raw": _hash_raw_files(dataset)}
        if dataset.options.plugin is not None:
            params["fingerprint"] = self.project.registry.compute_fingerprint(
                dataset.options.plugin
            )
        if readers := identify_readers(dataset):
            params["readers"] = {name: facts["fingerprint"] for name, facts in readers.items()}
        return _format_json(params)

    @property
    def datasets(self) -> str:
        """The folder of the dataset files."""
        return str(self.project.workflows / "datasets")

    @property
    def downloads(self) -> str:
        """A regular expression of all files that dataset files declare as downloads."""
        return "|".join(map(re.escape, self._downloads)) or _NOTHING

    def download(self, wildcards: Any) -> str:
        """Return the options of the command that fetches a file."""
        dataset, _ = self._downloads[wildcards.file]
        return f"--dataset {dataset} --file {quote(wildcards.file)} {self._workflows}"

    def sha256(self, wildcards: Any) -> str:
        """Return the hash that a file to be fetched must have."""
        _, sha256 = self._downloads[wildcards.file]
        return sha256

    @cached_property
    def _downloads(self) -> dict[str, tuple[str, str]]:
        """The name of each file to be fetched to its dataset and its hash."""
        files: dict[str, tuple[str, str]] = {}
        for path in sorted(Path(self.datasets).glob("*.yaml")):
            try:
                run = self.project.load_dataset(path.stem)
            except ValueError:
                continue  # a broken file stops those jobs alone that need it
            for name, download in run.options.downloads.items():
                files.setdefault(name, (run.name, download.sha256))
        return files

    def inputs(self, stage: str) -> Paths:
        """Return the function that gives the artifacts that a stage reads."""

        @end_with_message
        def list_paths(wildcards: Any) -> list[str]:
            experiment = self._load_experiment(wildcards.experiment)
            if stage == "figures":
                return list(map(str, self._list_sources(experiment)))
            return [str(path) for path in self._run(wildcards).list_inputs(stage).values()]

        return list_paths

    def _list_sources(self, experiment: ExperimentRun) -> list[Path]:
        """Return what the figures of an experiment are drawn from."""
        paper = experiment.path.with_name("expected.yaml")
        papers = [paper] if paper.exists() else []
        if self.options.evidence:
            home = self.project.workflows / EVIDENCE / experiment.experiment
            return [*(path for path in sorted(home.rglob("*")) if path.is_file()), *papers]
        runs = experiment.runs.values()
        files = [getattr(run, name) for run in runs for name in run.list_artifacts("figures")]
        return [*files, *(run.profile for run in runs if _has_work(run)), *papers]

    def params(self, stage: str) -> Callable[[Any], str]:
        """Return the function that gives what, apart from its inputs, a stage depends on.

        That is its own part of the experiment, the seed, and a fingerprint of the plugin's source,
        for figures those of all variants: an edit of any of them reruns exactly the stages that it
        touches.
        """

        @end_with_message
        def format_params(wildcards: Any) -> str:
            if stage == "figures":
                runs = list(self._load_experiment(wildcards.experiment).runs.values())
            else:
                runs = [self._run(wildcards)]
            plugins = dict.fromkeys(run.model_info.name for run in runs)
            fingerprints = " ".join(map(self.project.registry.compute_fingerprint, plugins))
            params = [{**run.select_params(stage), "seed": run.seed} for run in runs]
            return _format_json({"plugin": fingerprints, "options": params})

        return format_params

    def ranks(self, stage: str) -> Callable[[Any], int]:
        """Return the function that gives the processes of a stage, as its experiment says.

        A resource and no parameter, so that other ranks train nothing again; what a profile says of
        it wins, and the launcher of a profile wins over it.
        """

        @end_with_message
        def count(wildcards: Any) -> int:
            return _count_ranks(self._run(wildcards), stage)

        return count

    def threads(self, stage: str) -> Callable[[Any], int]:
        """Return the function that gives the cores of a stage: one a process at least.

        Runs of the scale `smoke` take one: more of them are under way at once, which ends sooner.
        What the experiment says goes before.
        """

        @end_with_message
        def count(wildcards: Any) -> int:
            run = self._run(wildcards)
            n_cores = run.file.threads or (1 if run.file.scale == "smoke" else THREADS[stage])
            return max(n_cores, _count_ranks(run, stage))

        return count

    def _run(self, wildcards: Any) -> Run:
        return self._load_experiment(wildcards.experiment).run(wildcards.variant)

    def _load_experiment(self, name: str) -> ExperimentRun:
        if name not in self._experiments:
            self._experiments[name] = self.project.load_experiment(name)
        return self._experiments[name]

    @end_with_message
    def experiments(self, wildcards: Any) -> list[str]:
        """Return the figures of all configured experiments; for a report those that exist."""
        if is_reporting():
            return self._list_drawn()
        experiments, problems = [], []
        for name in self.options.experiments:
            try:
                experiments.append(self._load_experiment(name))
            except ValueError as error:
                problems.append(str(error))
        if problems:
            raise ValueError("\n".join(problems))
        return [str(experiment.folder) for experiment in experiments]

    def _list_drawn(self) -> list[str]:
        """Return the figures that exist: of all experiments, unless the command line names some.

        Raises:
            ValueError: There are none.
        """
        named = any(word.startswith("experiments=") for word in sys.argv)
        names = self.options.experiments if named else list_all_experiments(self.project.workflows)
        drawn: list[str] = []
        for name in names:
            try:
                experiment = self._load_experiment(name)
                problem = explain_missing(experiment)
            except ValueError as error:
                problem = str(error)
            if problem:
                sys.stderr.write(f"the report leaves out {name}: {problem}\n")
            else:
                drawn += _keep_drawn([experiment])
        return drawn or self._refuse_report()

    def _refuse_report(self) -> NoReturn:
        raise ValueError(
            f"no experiment has figures in {self.options.results}/, so there is nothing to report; "
            "run `snakemake` first"
        )

    @property
    def papers(self) -> list[str]:
        """The plugins that have experiments."""
        folders = sorted((self.project.workflows / "experiments").glob("*/"))
        return [folder.name for folder in folders if list_experiments(folder)]

    def paper(self, plugin: str) -> Paths:
        """Return the function that gives all figures of a plugin at the configured scale.

        Experiments whose raw files are not there, and cannot be fetched, are left out. From
        evidence those of all scales are drawn that have any.
        """

        @end_with_message
        def list_paths(wildcards: Any) -> list[str]:
            return self._list_figures(plugin)

        return list_paths

    @end_with_message
    def all_papers(self, wildcards: Any) -> list[str]:
        """Return what `paper` gives of all plugins, from evidence of those that have any."""
        plugins = self.papers
        if self.options.evidence:
            kept = self.project.workflows / EVIDENCE
            plugins = [name for name in plugins if (kept / name).is_dir()] or plugins
            for name in sorted({*self.papers} - {*plugins}):
                sys.stderr.write(f"papers leaves out {name}: no evidence in {kept / name}\n")
        return [figures for plugin in plugins for figures in self._list_figures(plugin)]

    def _list_figures(self, plugin: str) -> list[str]:
        chosen = self._choose_experiments(plugin)
        missing = {e.experiment: reason for e in chosen if (reason := self._explain(e))}
        if len(missing) == len(chosen):
            raise ValueError("\n".join(missing.values()))
        for name, reason in missing.items():
            sys.stderr.write(f"paper_{plugin} leaves out {name}: {reason}\n")
        left = [e for e in chosen if e.experiment not in missing]
        if is_reporting():
            return _keep_drawn(left) or self._refuse_report()
        return [str(e.folder) for e in left]

    def _choose_experiments(self, plugin: str) -> list[ExperimentRun]:
        folder = self.project.workflows / "experiments" / plugin
        experiments = [self._load_experiment(name) for name in list_experiments(folder)]
        if self.options.evidence:
            return experiments
        chosen = [e for e in experiments if e.file.scale == self.options.scale]
        if not chosen:
            scales = sorted({e.file.scale for e in experiments})
            raise ValueError(
                f"{folder}: no experiment has the scale {self.options.scale!r}, "
                f"only {', '.join(scales)}; choose one with --config scale={scales[0]}"
            )
        return chosen

    def _explain(self, experiment: ExperimentRun) -> str | None:
        """Return why an experiment cannot be computed or drawn; None if it can."""
        if not self.options.evidence:
            return explain_missing(experiment)
        home = self.project.workflows / EVIDENCE / experiment.experiment
        return None if home.is_dir() else f"no evidence in {home}"

    def read_overviews(self) -> list[Overview]:
        """Return what the stages of the planned experiments do."""
        from pipeline_core.cli.overview import read_overview

        now = time.time()
        return [read_overview(one, now) for one in list(self._experiments.values())]

    def report_failures(self) -> None:
        """Write what has failed in the planned experiments, and why, to standard error."""
        from pipeline_core.cli.status_lines import describe_failures

        lines = describe_failures(self.read_overviews())
        if lines:
            sys.stderr.write("\n".join(["", "What has failed:", *lines, ""]) + "\n")

    def figure_heading(self, wildcards: Any, output: Any) -> str:
        """Return the heading of the report under which a drawn figure stands."""
        return str(_read_index(output)[wildcards.figure]["category"])

    def figure_labels(self, wildcards: Any, output: Any) -> dict[str, str]:
        """Return what the report's table says of a drawn figure."""
        return {"figure": _read_index(output)[wildcards.figure]["title"]}


_NOTHING: Final = r"(?!)"
"""A regular expression that matches no file."""


_INDEX: Final = "index.json"
"""The last file that the figures stage writes."""


def is_reporting() -> bool:
    """Tell whether Snakemake has been asked for a report, and not to compute."""
    return any(re.fullmatch(r"--report(=.*)?", word) for word in sys.argv[1:])


def _keep_drawn(experiments: Iterable[ExperimentRun]) -> list[str]:
    """Return the folders of figures that have been drawn."""
    return [str(one.folder) for one in experiments if (one.folder / _INDEX).exists()]


def _hash_raw_files(dataset: DatasetRun) -> dict[str, str]:
    """Return name and SHA-256 of raw files, of those to be fetched what the dataset file says."""
    declared = {n: d.sha256 for part in dataset.parts for n, d in part.options.downloads.items()}
    found = {**dataset.find_raw_files(), **find_beside(dataset)}
    files = {n: path for n, path in found.items() if n not in declared}
    return {**declared, **hash_raw_files(files, dataset.raw_memory)}


def _count_ranks(run: Run, stage: str) -> int:
    """Return the processes of a stage: of a use, several only where they divide structures."""
    if stage == "infer" and run.get_section("partition", PartitionOptions).parts != "graph":
        return 1
    return run.ranks if stage in ("train", "infer") else 1


def _has_work(run: Run) -> bool:
    """Return whether the experiment says what of a run to measure."""
    return run.has_stage("profile") and run.get_section("profile", ProfileOptions).has_work


def _format_json(params: Any) -> str:
    return json.dumps(params, sort_keys=True)


def _read_index(output: Any) -> dict[str, dict[str, str]]:
    content = json.loads((Path(str(output[0])) / _INDEX).read_text(encoding="utf-8"))
    return {entry["name"]: entry for entry in content}
