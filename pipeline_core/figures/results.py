"""Inputs of figures: the small files of a run, read and checked here alone.

A plugin may write its own layout in place of the engine's; then the functions here return nothing,
and the plugin provides figures of its own.
"""

import json
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from pipeline_core.artifacts import store
from pipeline_core.artifacts.seals import open_file, take_checksum
from pipeline_core.config.yaml_files import validate_content
from pipeline_core.fields import SPLITS
from pipeline_core.project.run import ExperimentRun, Run

logger = logging.getLogger(__name__)

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


class _Report(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Errors(_Report):
    """Errors of one quantity, in the engine's unit; null without labels."""

    unit: str
    count: int
    mae: float | None
    rmse: float | None
    r2: float | None
    label_mean_absolute: float | None


Table = dict[str, Errors]
"""Errors by quantity."""


class Split(_Report):
    """Errors on one split."""

    n_samples: int
    quantities: Table
    groups: dict[str, Table] = {}
    elements: dict[str, Table] = {}
    heads: dict[str, Table] = {}
    """Errors by head, for a model with several, such as levels of theory."""
    conservation: dict[str, float] = {}
    """Deviations of forces from a gradient, for forces that are not derivatives."""


class Metrics(_Report):
    """Content of `run.metrics` that figures need."""

    splits: dict[str, Split]

    @property
    def held_out(self) -> str | None:
        """The split that figures show: test, else validation, else any other with samples."""
        filled = [name for name, split in self.splits.items() if split.n_samples]
        return next((n for n in ("test", "val", *filled) if n in filled), None)


class Groups(_Report):
    """Number of groups of the samples, and the samples of the largest ones by split."""

    count: int = 0
    largest: dict[str, dict[str, int]] = {}


class Part(_Report):
    """A part of a dataset: samples by their number of atoms."""

    sizes: dict[int, int] = {}


class ImportReport(_Report):
    """Content of the report of the data stage that figures need; optional in a plugin's report."""

    dataset: str | None = None
    splits: dict[str, int] = {}
    groups: Groups = Groups()
    parts: dict[str, Part] = {}
    warnings: list[str] = []


def name_reference(experiment: ExperimentRun) -> str:
    """Return the name of the labels on an axis."""
    return "DFT" if experiment.model_info.data_kind == "structure" else "reference"


def name_samples(experiment: ExperimentRun) -> str:
    """Return the name of the samples: frames of structures, points of surfaces."""
    names = {"structure": "frames", "point": "points"}
    return names.get(experiment.model_info.data_kind, "samples")


def read_metrics(run: Run) -> Metrics | None:
    """Read the errors of a run; None if it has none in the engine's layout."""
    content = read_json(run.metrics)
    if not isinstance(content, dict) or "splits" not in content:
        return None
    return validate_content(Metrics, content, run.metrics)


def read_history(run: Run, *, with_start: bool = False) -> list[dict[str, Any]]:
    """Read one record per epoch; empty if the run has none.

    Args:
        run: The run.
        with_start: Whether to include epoch 0, if there: errors of the initial weights, without a
            training loss.

    Raises:
        ValueError: A line is not a record.
    """
    records, torn = _read_lines(run.history, ("epoch",))
    if torn:
        raise ValueError(
            f"{run.history}: line {torn[0]} is not a record of an epoch; the stage 'train' writes "
            f"the file again from its saved state: {run.name_command('train')}"
        )
    return [record for record in records if record["epoch"] or with_start]


def compute_epoch_seconds(run: Run) -> float | None:
    """Return the median time of an epoch's training steps; None if the run was not trained.

    The first of several epochs does not count: it includes compilation and filling of caches.
    """
    times = [record["seconds"] for record in _skip_first(read_history(run)) if "seconds" in record]
    return float(np.median(times)) if times else None


def read_rank_seconds(run: Run) -> dict[str, Floats]:
    """Return the seconds per epoch that each rank computed, communicated and waited.

    Returns:
        compute, communication, idle -> (n_ranks,), means over the epochs that count in
        `compute_epoch_seconds`; empty if the training was not profiled.
    """
    profiles = [
        record["profile"] for record in _skip_first(read_history(run)) if record.get("profile")
    ]
    parts = profiles[0] if profiles else {}
    return {part: np.mean([p[part] for p in profiles], axis=0) for part in parts}


def _skip_first(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return records[1:] or records


def read_balance(run: Run) -> list[dict[str, Any]]:
    """Read the forecast of load balance, one entry per number of ranks; may be empty."""
    return run.extract("balance", lambda: _read_balance(run))


def _read_balance(run: Run) -> list[dict[str, Any]]:
    with _open(run.partition, "partition") as file:
        forecast: list[dict[str, Any]] = json.loads(file.attrs.get("balance", "[]")) if file else []
    return forecast


def read_sizes(run: Run) -> dict[str, dict[str, Counts]]:
    """Read the sizes of samples: split -> kind, such as "atom" -> (n_samples,)."""
    return run.extract("sizes", lambda: _read_sizes(run))


def _read_sizes(run: Run) -> dict[str, dict[str, Counts]]:
    with _open(run.partition, "partition") as file:
        return {
            split: {kind: counts[:] for kind, counts in file[f"{split}/sizes"].items()}
            for split in SPLITS
            if file and f"{split}/sizes" in file
        }


def read_all_sizes(experiment: ExperimentRun, kinds: Sequence[str]) -> dict[str, Counts]:
    """Read sizes of the samples of all splits: kind -> (n_samples,), of the first run that has all.

    Empty if there is none.
    """
    for run in experiment.runs.values():
        splits = [sizes for sizes in read_sizes(run).values() if set(kinds) <= sizes.keys()]
        if sum(len(sizes[kinds[0]]) for sizes in splits):
            return {kind: np.concatenate([sizes[kind] for sizes in splits]) for kind in kinds}
    return {}


def read_profile(run: Run) -> dict[str, Any] | None:
    """Read the profile: time and memory of training steps, projections; None if not measured."""
    content: dict[str, Any] | None = read_json(run.profile)
    return content


def open_inference(run: Run, schema: str = "inference") -> AbstractContextManager[h5py.File | None]:
    """Open the file of the stage infer; None if there is none of a schema, by default ours."""
    return _open(run.inference, schema)


@contextmanager
def _open(path: Path, schema: str) -> Iterator[h5py.File | None]:
    if not store.has_schema(path, schema):
        yield None
        return
    with store.open_artifact(path, schema) as file, store.explain_damage(path):
        yield file


def read_attributes(run: Run) -> dict[str, Any]:
    """Read the attributes in the file of the stage infer, in the engine's or a plugin's layout.

    Returns:
        Groups and attributes by name, JSON in attributes parsed; empty if there is no such file.
    """
    if not run.inference.exists():
        return {}
    with store.open_any(run.inference) as file:
        return _collect_attributes(file)


def _collect_attributes(group: h5py.Group) -> dict[str, Any]:
    below = {
        name: _collect_attributes(one) for name, one in group.items() if isinstance(one, h5py.Group)
    }
    return below | {name: _parse_attribute(value) for name, value in group.attrs.items()}


def _parse_attribute(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    try:
        return json.loads(value)
    except (TypeError, ValueError):
        return value


def read_import_report(experiment: ExperimentRun) -> ImportReport:
    """Read the report of the data stage; an empty report if there is none.

    Raises:
        ValueError: The file is damaged, or is the report of another dataset.
    """
    dataset = next(iter(experiment.runs.values())).dataset
    content = read_json(dataset.report) if dataset else None
    if dataset is None or not isinstance(content, dict):
        return ImportReport()
    report = validate_content(ImportReport, content, dataset.report)
    if report.dataset not in (None, dataset.name):
        raise ValueError(
            f"{dataset.report}: not a report of {dataset.name!r}; run {dataset.command}"
        )
    return report


def read_records(folder: Path) -> list[dict[str, Any]]:
    """Read the records of the stages that wrote into a folder, in the order of their ends.

    Torn or damaged lines are left out, with a warning: records are not results.
    """
    path = folder / "records.jsonl"
    records, torn = _read_lines(path, ("stage", "seconds"))
    if torn:
        numbers = ", ".join(map(str, torn))
        logger.warning("%s: line %s is not a record of a stage, and is left out", path, numbers)
    return records


def read_json(path: Path) -> Any:
    """Read JSON; None if the file is not there.

    Raises:
        ValueError: It is not JSON, damaged, or a broken link.
    """
    return store.read_json(path) if os.path.lexists(path) else None


def _read_lines(path: Path, keys: Sequence[str]) -> tuple[list[dict[str, Any]], list[int]]:
    """Return the JSON objects with some keys, one per line, and the numbers of other lines."""
    records, torn = [], []
    for number, line in enumerate(_split_lines(path), 1):
        try:
            content = json.loads(line)
            record = take_checksum(content)[0] if isinstance(content, dict) else {}
        except (ValueError, RecursionError):
            record = {}
        if all(key in record for key in keys):
            records.append(record)
        else:
            torn.append(number)
    return records, torn


def _split_lines(path: Path) -> list[bytes]:
    if not path.exists():
        return []
    with open_file(path) as file:
        return file.read().splitlines()
