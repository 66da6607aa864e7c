"""Inputs of figures: the small files of a run, read and checked here alone.

A plugin may write its own layout in place of the engine's; then the functions here return nothing,
and the plugin provides figures of its own.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from pipeline_core.artifacts import store
from pipeline_core.artifacts.samples import SampleFile
from pipeline_core.artifacts.seals import open_file, take_checksum
from pipeline_core.config.yaml_files import validate_content
from pipeline_core.fields import SPLITS
from pipeline_core.figures.quantities import Quantity, find_quantity
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


@dataclass(frozen=True)
class Comparison:
    """Labels and predictions of one quantity on one split, as figures show them.

    Attributes:
        quantity: The quantity and its units.
        split: Name of the split.
        label: (n,) in `quantity.unit`; components of vectors one by one.
        predicted: (n,) likewise.
        errors: From the metrics, in the engine's unit.
        half_width: (n,) of 95 % intervals in `quantity.unit`; None without a committee.
        head: Head of the samples, for a model with several; None for all.
    """

    quantity: Quantity
    split: str
    label: Floats
    predicted: Floats
    errors: Errors
    half_width: Floats | None = None
    head: str | None = None


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


def list_heads(run: Run) -> list[str]:
    """Return the heads with errors on the held-out split; empty for a model with one."""
    report = read_metrics(run)
    return list(report.splits[report.held_out].heads) if report and report.held_out else []


def read_comparisons(run: Run, head: str | None = None) -> list[Comparison]:
    """Read labels and predictions of every quantity on the held-out split.

    Args:
        run: The run.
        head: One of `list_heads`, to read its samples only; None for all.
    """
    report = read_metrics(run)
    split = report.held_out if report else None
    if report is None or split is None or not store.has_schema(run.predictions, "predictions"):
        return []
    table = report.splits[split].quantities if head is None else report.splits[split].heads[head]
    with SampleFile(run.predictions, "predictions") as file:
        chosen = file.read_column("split") == SPLITS.index(split)
        if head is not None:
            number = json.loads(file.attributes["heads"]).index(head)
            chosen &= file.read_column("head") == number
        names = [n.removesuffix("_label") for n in file.fields if n.endswith("_label")]
        comparisons = []
        for name in names:
            shown = f"{name}_per_atom" if f"{name}_per_atom" in table else name
            errors = table.get(shown)
            if errors is not None and errors.count:
                quantity = find_quantity(shown, errors.unit)
                compared = _read_comparison(file, name, chosen, quantity, split, errors)
                comparisons.append(replace(compared, head=head))
    return comparisons


def _read_comparison(
    file: SampleFile,
    name: str,
    chosen: NDArray[np.bool_],
    shown: Quantity,
    split: str,
    errors: Errors,
) -> Comparison:
    kind = file.fields[f"{name}_label"].kind
    rows = chosen if kind == "sample" else np.repeat(chosen, file.count_rows(kind))
    divisor = file.count_rows("atom")[chosen] if shown.name != name else 1
    label, predicted = (
        (file.read_column(f"{name}_{role}")[rows].astype(np.float64).T / divisor).T.ravel()
        * shown.factor
        for role in ("label", "predicted")
    )
    present = ~np.isnan(label)
    return Comparison(shown, split, label[present], predicted[present], errors)


def read_forces(run: Run) -> dict[str, tuple[Floats, Floats]]:
    """Return labelled and predicted forces of each predicted split, (n_atoms, 3) in eV/Å."""
    if not store.has_schema(run.predictions, "predictions"):
        return {}
    with SampleFile(run.predictions, "predictions") as file:
        if "forces_label" not in file.fields:
            return {}
        codes = np.repeat(file.read_column("split"), file.count_rows("atom"))
        label, predicted = file.read_column("forces_label"), file.read_column("forces_predicted")
    present = ~np.isnan(label).any(axis=1)
    forces = {}
    for code, split in enumerate(SPLITS):
        rows = present & (codes == code)
        if rows.any():
            forces[split] = label[rows].astype(np.float64), predicted[rows].astype(np.float64)
    return forces


def read_balance(run: Run) -> list[dict[str, Any]]:
    """Read the forecast of load balance, one entry per number of ranks; may be empty."""
    return run.extract("balance", lambda: _read_balance(run))


def _read_balance(run: Run) -> list[dict[str, Any]]:
    if not store.has_schema(run.partition, "partition"):
        return []
    with store.open_artifact(run.partition, "partition") as file:
        forecast: list[dict[str, Any]] = json.loads(file.attrs.get("balance", "[]"))
    return forecast


def read_sizes(run: Run) -> dict[str, dict[str, Counts]]:
    """Read the sizes of samples: split -> kind, such as "atom" -> (n_samples,)."""
    return run.extract("sizes", lambda: _read_sizes(run))


def _read_sizes(run: Run) -> dict[str, dict[str, Counts]]:
    if not store.has_schema(run.partition, "partition"):
        return {}
    with (
        store.open_artifact(run.partition, "partition") as file,
        store.explain_damage(run.partition),
    ):
        return {
            split: {kind: counts[:] for kind, counts in file[f"{split}/sizes"].items()}
            for split in SPLITS
            if f"{split}/sizes" in file
        }


def read_profile(run: Run) -> dict[str, Any] | None:
    """Read the profile: time and memory of training steps, projections; None if not measured."""
    content: dict[str, Any] | None = read_json(run.profile)
    return content


@contextmanager
def open_inference(run: Run, schema: str = "inference") -> Iterator[h5py.File | None]:
    """Open the file of the stage infer; None if there is none of a schema, by default ours."""
    if not store.has_schema(run.inference, schema):
        yield None
        return
    with store.open_artifact(run.inference, schema) as file, store.explain_damage(run.inference):
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
