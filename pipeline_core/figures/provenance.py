"""Provenance of the results as a table: code, data, seeds, versions, machine and times."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from pipeline_core.artifacts import store
from pipeline_core.figures import results
from pipeline_core.figures.formats import format_number
from pipeline_core.model_info import RUN_STAGES, ModelInfo
from pipeline_core.project.dataset_run import DatasetRun
from pipeline_core.project.run import ExperimentRun, Run

Fact = tuple[str, str]


def collect_rows(experiment: ExperimentRun) -> list[Fact]:
    """Return names and values of all that the results depend on, and the times of all stages."""
    return [*_collect_facts(experiment), *_collect_times(experiment)]


def _collect_facts(experiment: ExperimentRun) -> list[Fact]:
    runs = list(experiment.runs.values())
    record = _read_provenance(runs[0])
    if not record:
        return []
    facts = [
        ("experiment", f"{experiment.experiment} (scale: {experiment.file.scale})"),
        ("variants", ", ".join(experiment.runs)),
        *(fact for info in experiment.models for fact in _describe_plugin(info, runs)),
        ("commit", record["commit"] or "none: not in a Git repository"),
        ("seed", _format_seeds(runs)),
        (
            "versions",
            ", ".join(f"{name} {version}" for name, version in record["versions"].items()),
        ),
    ]
    return facts + [fact for dataset in experiment.datasets for fact in _describe_dataset(dataset)]


def _describe_plugin(info: ModelInfo, runs: Sequence[Run]) -> list[Fact]:
    """Return a model with its citation, and the source that made its first variant's results."""
    record = next(_read_provenance(run) for run in runs if run.model_info.name == info.name)
    words = [info.name]
    if record and "plugin_version" in record:  # records of earlier versions have none
        words.append(f"{record['distribution']} {record['plugin_version']}")
    if record:
        words.append(f"source fingerprint {record['fingerprint']}")
    return [("plugin", ", ".join(words)), ("citation", info.citation)]


def _format_seeds(runs: Sequence[Run]) -> str:
    if len({run.seed for run in runs}) == 1:
        return str(runs[0].seed)
    return ", ".join(f"{run.variant}: {run.seed}" for run in runs)


def _read_provenance(run: Run) -> dict[str, Any]:
    """Return the record of the predictions, else of the errors."""
    content = results.read_json(run.metrics)
    record = content.get("provenance") if isinstance(content, dict) else None
    if record is None and run.predictions.exists():
        record = store.read_provenance(run.predictions)
    return record or {}


def _describe_dataset(dataset: DatasetRun) -> list[Fact]:
    facts = [("dataset", f"{dataset.name}: {dataset.options.description}")]
    found = next((path for path in (dataset.data, dataset.report) if path.exists()), None)
    if found is not None:
        inputs = store.read_provenance(found).get("inputs", {})
        digest = hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()
        facts.append(("raw data", f"{len(inputs)} files, SHA-256 of their hashes {digest[:16]}"))
    return facts


def _read_data_records(dataset: DatasetRun) -> list[dict[str, Any]]:
    return [one for one in results.read_records(dataset.folder) if one["stage"] == "data"]


def _collect_times(experiment: ExperimentRun) -> list[Fact]:
    """Return time and hardware of each stage, one row per variant and stage."""
    times = [
        ("data" if len(experiment.datasets) == 1 else f"data: {dataset.name}", _format_cost(record))
        for dataset in experiment.datasets
        for record in _read_data_records(dataset)[-1:]
    ]
    for run in experiment.runs.values():
        times += [
            (f"{run.variant}: {r['stage']}", _format_cost(r)) for r in read_stage_records(run)
        ]
    return times


def read_stage_records(run: Run) -> list[dict[str, Any]]:
    """Return the last record of each stage of a run, in their order."""
    last = {record["stage"]: record for record in results.read_records(run.folder)}
    return [last[stage] for stage in RUN_STAGES if stage in last]


def describe_hardware(record: dict[str, Any]) -> str:
    """Return the hardware of a stage."""
    place = record.get("gpu") or f"{record.get('cpu', 'unknown')}, {record.get('cores', '?')} cores"
    ranks = record.get("ranks", 1)
    return f"{place}, {ranks} ranks" if ranks > 1 else str(place)


def format_duration(seconds: float) -> str:
    """Format a time."""
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{format_number(seconds, 2)} s"


def _format_cost(record: dict[str, Any]) -> str:
    memory = record.get("peak_memory", 0) / 2**30
    seconds = format_duration(record["seconds"])
    return f"{seconds}, {memory:.1f} GiB at most, {describe_hardware(record)}"
