"""Targets of the workflow: figures of experiments or papers, or a report of them."""

import re
import sys
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, Final, NoReturn, ParamSpec, TypeVar

from pipeline_core.config.workflow import WorkflowOptions
from pipeline_core.project.project import (
    EVIDENCE,
    Project,
    explain_missing,
    list_all_experiments,
    list_experiments,
)
from pipeline_core.project.run import ExperimentRun

INDEX: Final = "index.json"
"""The last file that the figures stage writes."""

Paths = Callable[[Any], list[str]]
"""An input of a Snakemake rule: a function of a job's wildcards."""

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")


def end_with_message(answer: Callable[Arguments, Answer]) -> Callable[Arguments, Answer]:
    """Make a function called by Snakemake exit with the message alone after a user's mistake.

    Snakemake prints the message of any `Exception` between a header and a traceback.
    """

    @wraps(answer)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Answer:
        try:
            return answer(*args, **kwargs)
        except ValueError as error:
            raise SystemExit(f"error: {error}") from None

    return call


class Targets:
    """Targets of the workflow, as functions of the wildcards of a job, which they ignore.

    Args:
        options: The configuration.
        project: Its experiments.
    """

    def __init__(self, options: WorkflowOptions, project: Project) -> None:
        self.options, self.project = options, project
        self._experiments: dict[str, ExperimentRun] = {}  # each is read once, for all its jobs

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

        Experiments without raw files, or a way to fetch them, are left out. From evidence, the
        experiments of all scales are drawn that have any.
        """

        @end_with_message
        def list_paths(wildcards: Any) -> list[str]:
            return self._list_figures(plugin)

        return list_paths

    @end_with_message
    def all_papers(self, wildcards: Any) -> list[str]:
        """Return the results of `paper` for all plugins; from evidence, for those that have any."""
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
        """Return the reason why an experiment cannot be computed or drawn; None if it can."""
        if not self.options.evidence:
            return explain_missing(experiment)
        archive = self.project.find_evidence(experiment.experiment)
        return None if archive.is_file() else f"no evidence in {archive}"


def is_reporting() -> bool:
    """Return True if Snakemake is called for a report instead of a computation."""
    return any(re.fullmatch(r"--report(=.*)?", word) for word in sys.argv[1:])


def _keep_drawn(experiments: Iterable[ExperimentRun]) -> list[str]:
    """Return the folders of figures that have been drawn."""
    return [str(one.folder) for one in experiments if (one.folder / INDEX).exists()]
