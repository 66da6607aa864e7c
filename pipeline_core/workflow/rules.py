"""Interface of the Snakemake rules to the engine: inputs and parameters of jobs, targets.

Rules hold no Python: they call the methods of one `Plan`. It takes every path from the same
`Project` as the command line, so both agree on the place of an artifact. Nothing heavy is imported
here: each job on a cluster reads the Snakefile again.
"""

from __future__ import annotations

import json
import math
import re
import sys
import time
from collections.abc import Callable
from functools import cached_property
from itertools import chain
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, ClassVar, Final

from pipeline_core.config.raw_files import hash_raw_files
from pipeline_core.config.sections import PartitionOptions
from pipeline_core.config.variables import find_misspelled
from pipeline_core.config.workflow import CONFIG, WorkflowOptions
from pipeline_core.config.yaml_files import read_yaml, validate_content
from pipeline_core.model_info import STAGES
from pipeline_core.project.dataset_run import DatasetRun
from pipeline_core.project.project import NAME, Project
from pipeline_core.project.run import ExperimentRun, Run
from pipeline_core.project.working_folder import SCHEMA, check_folder
from pipeline_core.registry import Registry
from pipeline_core.stages.builtin import load_registry
from pipeline_core.workflow.targets import INDEX, Paths, Targets, end_with_message

if TYPE_CHECKING:
    from pipeline_core.status.overview import Overview

THREADS: Final = {"train": 8, "evaluate": 4, "infer": 4, "profile": 4}
"""Cores of a stage that gains from several; Snakemake takes fewer where there are fewer."""

_AROUND: Final = 15
"""Minutes of a job in addition to the budget of its training."""


class Plan(Targets):
    """Inputs, parameters and targets, as functions of the wildcards of a job.

    Args:
        config: The configuration that Snakemake has read.
        registry: The plugins; those of the environment if None.

    Raises:
        SystemExit: The configuration has a wrong key or value, or a newer package has made the
            folder; so do all methods where an experiment or a dataset is wrong.

    Attributes:
        RULES: The files of rules in `workflows/rules`.
        latest: The last plan made in this process: the plan of the Snakefile.
    """

    NAME = NAME
    latest: ClassVar[Plan | None] = None

    @end_with_message
    def __init__(self, config: dict[str, Any], registry: Registry | None = None) -> None:
        if (path := Path("workflows") / CONFIG).exists():
            read_yaml(path)  # refuses values that Snakemake reads otherwise than written
        note = check_folder(Path())
        if note and note.schema_version < SCHEMA:
            sys.stderr.write(
                "an older pipeline-core has made this folder: it works on; "
                "`pipeline-core init --upgrade` brings what is new\n"
            )
        for sentence in find_misspelled():
            sys.stderr.write(f"{sentence}\n")
        options = validate_content(WorkflowOptions, config, Path("workflows/config.yaml"))
        workflows, results = Path(options.workflows), Path(options.results)
        super().__init__(options, Project(workflows, results, registry or load_registry()))
        self.arguments = f"{self._workflows} --results {quote(self.options.results)}"
        self.drawing = f"{self.arguments}{' --evidence' if self.options.evidence else ''}"
        given = self.project.registry.manager.hook.rules()
        files = {name: functions for one in given for name, functions in one.items()}
        for function in chain.from_iterable(files.values()):
            setattr(self, function.__name__, self._answer(function))
        self.RULES = (*STAGES, "download", *files, "papers", "failures")
        Plan.latest = self

    def replace_report(self) -> None:
        """Make `snakemake --report FILE.html` write the engine's page."""
        from pipeline_core.report.reporter import replace_reporter

        replace_reporter(self.options.experiments)

    @property
    def shell_prefix(self) -> str:
        """Prefix of each shell command: strict mode, and this environment's programs first."""
        programs = quote(str(Path(sys.executable).parent))
        return f'set -euo pipefail; export PATH={programs}:"$PATH"; '

    @property
    def _workflows(self) -> str:
        return f"--workflows {quote(self.options.workflows)}"

    def container(self, wildcards: Any) -> str | None:
        """Return the container image of a job."""
        return self.options.container

    @end_with_message
    def raw_files(self, wildcards: Any) -> list[str]:
        """Return the raw files of a dataset and the files read with them."""
        dataset = self._find_dataset(wildcards)
        files = {**dataset.find_raw_files(), **dataset.find_dependencies().files}
        return list(map(str, files.values()))

    @end_with_message
    def dataset(self, wildcards: Any) -> str:
        """Return the facts that the data stage depends on, apart from raw files.

        They are the content of the dataset file without keys that do not affect the samples, hashes
        of raw files, and fingerprints of the plugins that make or read the data.
        """
        dataset = self._find_dataset(wildcards)
        params = {**dataset.select_params(), "raw": _hash_raw_files(dataset)}
        if dataset.options.plugin is not None:
            params["fingerprint"] = self.project.registry.compute_fingerprint(
                dataset.options.plugin
            )
        if readers := dataset.find_dependencies().plugins:
            params["readers"] = {name: facts["fingerprint"] for name, facts in readers.items()}
        return _format_json(params)

    def _find_dataset(self, wildcards: Any) -> DatasetRun:
        """Return the dataset of a job: a named one, or the dataset of a round."""
        if hasattr(wildcards, "dataset"):
            return self.project.load_dataset(wildcards.dataset)
        run = self._run(wildcards)
        if run.dataset is None or not run.dataset.grows:
            raise ValueError(
                f"{run.experiment}: the variant {run.variant!r} has no data of its own"
            )
        return run.dataset

    def _answer(self, function: Callable[[ExperimentRun, Run], Any]) -> Callable[[Any], Any]:
        """Return a function of a plugin (hook `rules`) as one of the wildcards of a job."""

        @end_with_message
        def call(wildcards: Any) -> Any:
            result = function(self._load_experiment(wildcards.experiment), self._run(wildcards))
            return _format_json(result) if isinstance(result, dict) else result

        return call

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
        """The name of each file to be fetched, with its dataset and its hash."""
        files: dict[str, tuple[str, str]] = {}
        for path in sorted(Path(self.datasets).glob("*.yaml")):
            try:
                run = self.project.load_dataset(path.stem)
            except ValueError:
                continue  # a broken file stops only the jobs that need it
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
            run = self._run(wildcards)
            return list(map(str, [*run.list_inputs(stage).values(), *run.list_awaited(stage)]))

        return list_paths

    def _list_sources(self, experiment: ExperimentRun) -> list[Path]:
        """Return the files behind the figures of an experiment."""
        paper = experiment.path.with_name("expected.yaml")
        papers = [paper] if paper.exists() else []
        if self.options.evidence:
            return [self.project.find_evidence(experiment.experiment), *papers]
        runs = experiment.runs.values()
        files = [getattr(run, name) for run in runs for name in run.list_artifacts("figures")]
        return [*files, *(run.profile for run in runs if run.has_work("profile")), *papers]

    def params(self, stage: str) -> Callable[[Any], str]:
        """Return the function that gives the facts a stage depends on, apart from its inputs.

        They are its part of the experiment, the seed, and a fingerprint of the plugin's source, for
        figures the ones of all variants: an edit of any of them reruns exactly the stages that it
        affects.
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
        """Return the function that gives the processes of a stage, as set in its experiment.

        They are a resource and not a parameter, so that a new number of ranks does not retrain
        anything; a profile overrides it, and the launcher of a profile overrides the profile.
        """

        @end_with_message
        def count(wildcards: Any) -> int:
            return _count_ranks(self._run(wildcards), stage)

        return count

    def threads(self, stage: str) -> Callable[[Any], int]:
        """Return the function that gives the cores of a stage: at least one per process.

        Runs of the scale `smoke` take one: more of them run at once, which finishes sooner. A
        number in the experiment takes precedence.
        """

        @end_with_message
        def count(wildcards: Any) -> int:
            run = self._run(wildcards)
            n_cores = run.file.threads or (1 if run.file.scale == "smoke" else THREADS[stage])
            return max(n_cores, _count_ranks(run, stage))

        return count

    @end_with_message
    def limit(self, wildcards: Any, otherwise: int) -> int:
        """Return the minutes that the job of a training may take.

        Profiles call it. Beyond the budget of the training it includes time before and after, and
        an epoch that takes longer than others.

        Args:
            wildcards: Wildcards of the job.
            otherwise: Result for a training without a budget of time.
        """
        minutes = getattr(self._run(wildcards).sections["train"], "minutes", None)
        return otherwise if minutes is None else math.ceil(1.1 * minutes + _AROUND)

    def _run(self, wildcards: Any) -> Run:
        return self._load_experiment(wildcards.experiment).run(wildcards.variant)

    def read_overviews(self) -> list[Overview]:
        """Return the states of the stages of the planned experiments."""
        from pipeline_core.status.overview import read_overview

        now = time.time()
        return [read_overview(one, now) for one in list(self._experiments.values())]

    def report_failures(self) -> None:
        """Write the failures of the planned experiments, with causes, to standard error."""
        from pipeline_core.status.lines import describe_failures

        lines = describe_failures(self.read_overviews())
        if lines:
            sys.stderr.write("\n".join(["", "What has failed:", *lines, ""]) + "\n")

    def figure_heading(self, wildcards: Any, output: Any) -> str:
        """Return the heading of the report under which a drawn figure stands."""
        return str(_read_index(output)[wildcards.figure]["category"])

    def figure_labels(self, wildcards: Any, output: Any) -> dict[str, str]:
        """Return the entries of the report's table for a drawn figure."""
        return {"figure": _read_index(output)[wildcards.figure]["title"]}


_NOTHING: Final = r"(?!)"
"""A regular expression that matches no file."""


def _hash_raw_files(dataset: DatasetRun) -> dict[str, str]:
    """Return name and SHA-256 of raw files; of downloads, the hash in the dataset file."""
    declared = {n: d.sha256 for part in dataset.parts for n, d in part.options.downloads.items()}
    found = {**dataset.find_raw_files(), **dataset.find_dependencies().files}
    made = {n for part in dataset.parts for n in part.options.expected}
    files = {n: path for n, path in found.items() if n not in made}
    return {**declared, **hash_raw_files(files, dataset.raw_memory)}


def _count_ranks(run: Run, stage: str) -> int:
    """Return the processes of a stage; `infer` has several only where they divide structures.

    A committee's structures are not divided.
    """
    if stage == "infer" and run.members:
        return 1
    if stage == "infer" and run.get_section("partition", PartitionOptions).parts != "graph":
        return 1
    return run.ranks if stage in ("train", "infer") else 1


def _format_json(params: Any) -> str:
    return json.dumps(params, sort_keys=True)


def _read_index(output: Any) -> dict[str, dict[str, str]]:
    content = json.loads((Path(str(output[0])) / INDEX).read_text(encoding="utf-8"))
    return {entry["name"]: entry for entry in content}
