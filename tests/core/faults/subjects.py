"""A small run in which all stages have run, and its files as stages read them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from ase.io import write

from pipeline_atoms.importing import dataset as importing
from pipeline_atoms.importing.import_cache import locate_kept
from pipeline_atoms.testing.example_data import make_alloys
from pipeline_core.artifacts import store
from pipeline_core.config.sections import TrainOptions
from pipeline_core.figures import results
from pipeline_core.model_info import MAKERS
from pipeline_core.project import lineage
from pipeline_core.project.lineage import Fault
from pipeline_core.project.project import Project
from pipeline_core.project.run import ExperimentRun, Run
from pipeline_core.task import build_task
from pipeline_core.testing.damage import digest_archive, digest_hdf5
from pipeline_core.testing.projects import EXPERIMENT, call, write_project
from pipeline_core.training import checkpoint
from pipeline_core.training.model_file import load_model

NAME = f"chgnet/{EXPERIMENT}"
STAGES = ("data", "graph", "partition", "train", "evaluate", "infer")
SECTIONS: dict[str, dict[str, Any]] = {
    "model": {
        "atom_features": 4, "bond_features": 4, "angle_features": 4, "hidden_features": 4,
        "readout_features": [4], "radial_functions": 5, "angular_functions": 5,
        "convolutions": 2,
    },
    "graph": {"cutoff": 3.0, "angle_cutoff": 2.6},
    "train": {"epochs": 2},  # a history of one line would be JSON
}  # fmt: skip


@dataclass(frozen=True)
class Subject:
    """A file that is damaged, and how a stage reads it."""

    name: str
    path: Path
    read: Callable[[], Any]
    # of what was read before and after the damage
    is_right: Callable[[Any, Any], bool] = lambda whole, damaged: bool(whole == damaged)
    is_memory: bool = False  # written anew when it cannot be read


def make_project(folder: Path, n_structures: int | None = None, seed: int = 0) -> Project:
    """Write a project; alloys are those of the conformance tests unless there are to be more."""
    train = {**SECTIONS["train"], "loss": {"energy": {"weight": 1.0 + seed}, "forces": {}}}
    project = write_project(folder, "chgnet", {**SECTIONS, **({"train": train} if seed else {})})
    if n_structures is not None or seed:
        alloys = make_alloys(n_structures or 15, seed)
        write(project.workflows / "datasets/alloys.extxyz", alloys)
    return project


def finish_run(project: Project, call: Callable[[Run, str], Any] = call) -> Run:
    """Run all stages, each by `call`; samples are kept, as those of large datasets are."""
    run = replace(project.run(NAME), device="cpu")
    large, importing._LARGE = importing._LARGE, 0
    try:
        call(run, "data")
    finally:
        importing._LARGE = large
    assert run.dataset is not None
    kept_file = locate_kept(run.dataset)
    kept = kept_file.read_bytes()
    kept_file.unlink()  # a link to the data, which are damaged by themselves
    kept_file.write_bytes(kept)
    for stage in STAGES[1:]:
        call(run, stage)
    return run


def list_subjects(run: Run) -> Iterator[Subject]:
    """Return all files of a finished run."""
    assert run.dataset is not None
    dataset = run.dataset
    yield Subject(
        "data", run.data, lambda: _read(run.data, "data", lineage.find_dataset_fault, dataset)
    )
    kept = locate_kept(dataset)
    yield Subject("kept", kept, lambda: _read_kept(kept))
    report = dataset.report
    yield Subject("report", report, lambda: _read_report(run))
    for name in MAKERS:
        path = getattr(run, name)
        if path.is_file():
            read = lambda p=path, n=name: _read(p, n, lineage.find_fault, run, n)  # noqa: E731
            yield Subject(name, path, read)
    yield Subject("state", run.state / "last.pt", lambda: _read_state(run))
    yield Subject("history", run.history, lambda: _read_history(run), _is_part)
    for folder in (run.folder, dataset.folder):
        path = folder / "records.jsonl"
        yield Subject(
            f"records in {folder.name}", path, lambda f=folder: results.read_records(f), _is_part
        )
    memory = dataset.raw_memory
    yield Subject("hashes of raw files", memory, dataset.hash_raw_files, is_memory=True)


def _is_part(whole: list[Any], damaged: list[Any]) -> bool:
    """Lines may be lost, and none may be another."""
    return all(line in whole for line in damaged)


def _read(path: Path, schema: str, find: Callable[..., Fault | None], *subject: Any) -> Any:
    if fault := find(*subject):
        raise ValueError(str(fault))
    return _read_content(path, schema)


def _read_content(path: Path, schema: str) -> Any:
    if path.suffix == ".json":
        return store.read_json(path)
    if path.suffix == ".pt":
        return digest_archive(load_model(path)), store.read_provenance(path)
    with store.open_artifact(path, schema):
        return digest_hdf5(path), store.read_provenance(path)


def _read_report(run: Run) -> Any:
    assert run.dataset is not None
    if fault := lineage.find_report_fault(run.dataset):
        raise ValueError(str(fault))
    return results.read_import_report(cast("ExperimentRun", SimpleNamespace(runs={"base": run})))


def _read_kept(path: Path) -> Any:
    store.check(path)  # as an import does that takes samples from there
    return _read_content(path, "data")


def _read_state(run: Run) -> str:
    options = run.get_section("train", TrainOptions)
    path, facts = run.state / "last.pt", checkpoint.resume_key(run, options)
    module = build_task(run).module
    obstacle = checkpoint.compare_state(
        path, run.model_info, facts, options.epochs, module
    ).obstacle
    if obstacle is not None:
        raise ValueError(obstacle)
    return digest_archive(checkpoint.load_state(path, run.model_info))


def _read_history(run: Run) -> Any:
    if fault := lineage.find_history_fault(run):
        raise ValueError(str(fault))
    return results.read_history(run)


class Warnings(logging.Handler):
    """Keeps what is logged as a warning."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a message."""
        self.text += record.getMessage()
