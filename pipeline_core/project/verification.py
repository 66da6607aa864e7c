"""Integrity and consistency of all artifacts of an experiment."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pipeline_core.artifacts import store
from pipeline_core.model_info import MAKERS
from pipeline_core.project import lineage
from pipeline_core.project.lineage import Fault
from pipeline_core.project.run import ExperimentRun, Run


def inspect_experiment(experiment: ExperimentRun, checked: dict[Path, bool]) -> Iterator[Fault]:
    """Read all artifacts of an experiment; yield their faults.

    Args:
        experiment: The experiment.
        checked: Receives each file that is read, and whether it has a checksum; files that it holds
            already are not read again.
    """
    for run in experiment.runs.values():
        for dataset in run.datasets:
            files = dict.fromkeys((dataset.data, dataset.report), dataset.command)
            yield from _check_files(files, checked)
            yield from _find(dataset.data, dataset.command, lineage.find_dataset_fault, dataset)
            yield from _find(dataset.report, dataset.command, lineage.find_report_fault, dataset)
        yield from _check_files(_list_files(run), checked)
        for name, stage in MAKERS.items():
            path, command = getattr(run, name), run.name_command(stage)
            yield from _find(path, command, lineage.find_fault, run, name)
        yield from _find(run.model, run.name_command("train"), lineage.find_history_fault, run)


def _list_files(run: Run) -> dict[Path, str]:
    """Return the files of a run with the commands that make them; plugins may write more."""
    more = sorted(path for kind in ("h5", "json") for path in run.folder.rglob(f"*.{kind}"))
    stages = dict.fromkeys(more, "infer") | {run.state / "last.pt": "train"}
    stages |= {getattr(run, name): stage for name, stage in MAKERS.items()}
    return {path: run.name_command(stage) for path, stage in stages.items()}


def _check_files(commands: Mapping[Path, str], checked: dict[Path, bool]) -> Iterator[Fault]:
    for path, command in commands.items():
        if path.is_file() and path not in checked:
            try:
                checked[path] = store.check(path)
            except ValueError as error:
                checked[path] = True
                yield _describe(path, error, command)


def _find(
    path: Path, command: str, find: Callable[..., Fault | None], *subject: Any
) -> Iterator[Fault]:
    try:
        fault = find(*subject)
    except ValueError as error:
        fault = _describe(path, error, command)
    if fault is not None:
        yield fault


def _describe(path: Path, error: ValueError, command: str) -> Fault:
    return Fault(path, str(error).removeprefix(f"{path}: ").partition(";")[0], command)
