"""Records that tables come from: results of benchmarks, and kept evidence of experiments."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from docs.claims.tables import ROOT
from pipeline_core.figures import reproduction
from pipeline_core.figures.evidence import load_evidence
from pipeline_core.figures.results import (
    compute_epoch_seconds,
    read_attributes,
    read_history,
    read_json,
    read_profile,
    read_records,
)
from pipeline_core.project.project import Project
from pipeline_core.project.run import ExperimentRun, Run
from pipeline_core.stages.builtin import load_registry

RESULTS = ROOT / "tests/benchmarks/results"


@cache
def read_result(name: str) -> dict[str, Any]:
    """Read what a benchmark has printed."""
    content: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return content


def list_cases(name: str) -> list[dict[str, Any]]:
    """Read a benchmark whose cases are lists side by side; return one mapping a case."""
    content = read_result(name)
    n_cases = len(content["ours_s"])
    lists = {k: v for k, v in content.items() if isinstance(v, list) and len(v) == n_cases}
    return [{key: values[i] for key, values in lists.items()} for i in range(n_cases)]


def find_case(name: str, **wanted: Any) -> dict[str, Any]:
    """Return the one case of a benchmark with these values."""
    (found,) = [c for c in list_cases(name) if all(c[k] == v for k, v in wanted.items())]
    return found


@cache
def load_experiment(name: str) -> ExperimentRun:
    """Load an experiment whose artifacts are its evidence."""
    project = Project(ROOT / "workflows", Path("no results"), load_registry())
    return load_evidence(name, project)


def get_run(name: str, variant: str = "base") -> Run:
    """Return a variant of an experiment of which evidence is kept."""
    return load_experiment(name).runs[variant]


@cache
def read_metrics(name: str, variant: str = "base") -> dict[str, Any]:
    """Read the metrics of a variant."""
    content: dict[str, Any] = read_json(get_run(name, variant).metrics)
    return content


def get_mae(name: str, variant: str, quantity: str, split: str = "test") -> float:
    """Return the mean absolute error of a variant on a split, in the unit of its metrics."""
    quantities = read_metrics(name, variant)["splits"][split]["quantities"]
    return float(quantities[quantity]["mae"])


def get_seconds(name: str, variant: str, stage: str) -> float:
    """Return the time that a stage took."""
    (seconds,) = [
        record["seconds"]
        for record in read_records(get_run(name, variant).folder)
        if record["stage"] == stage
    ]
    return float(seconds)


def read_epochs(name: str, variant: str) -> list[dict[str, Any]]:
    """Read the history of a training, an entry an epoch."""
    return read_history(get_run(name, variant))


def read_inference(name: str, variant: str) -> dict[str, Any]:
    """Read what the stage `infer` reports."""
    return read_attributes(get_run(name, variant))


@cache
def read_reproduction(name: str) -> dict[str, dict[str, Any]]:
    """Read the numbers of a paper with ours beside them, by their names in `expected.yaml`."""
    report = reproduction.compare(load_experiment(name))
    assert report is not None, f"{name}: no expected.yaml"
    return {entry["id"]: entry for entry in report["entries"]}


def get_projected_seconds(name: str, variant: str, strategy: str, ranks: int) -> float:
    """Return the projected time of an epoch of the paper's large set on so many ranks."""
    profile = read_profile(get_run(name, variant))
    assert profile is not None
    (seconds,) = [
        one["seconds"]
        for one in profile["projection"]
        if (one["mode"], one["strategy"], one["ranks"]) == ("strong", strategy, ranks)
    ]
    return float(seconds)


def get_epoch_seconds(name: str, variant: str) -> float:
    """Return the time of an epoch of a training, the first left out."""
    seconds = compute_epoch_seconds(get_run(name, variant))
    assert seconds is not None
    return seconds
