"""Fits of surfaces by the stages of the plugin, and by baselines, on the same points."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pipeline_core.project.run import Run
from pipeline_core.units import HARTREE
from subjects.htfbr.baselines import Fitted, Problem, Subset, compute_rmse
from subjects.htfbr.project import call, make_project

OURS = {"rank 10": "base", "adaptive": "adaptive"}
"""Name here: variant of the experiment."""
SECTIONS = ("description", "plugin", "scale", "model", "graph", "train")


def make_runs(
    folder: Path, dataset: Mapping[str, Any], experiment: Mapping[str, Any], **sections: Any
) -> dict[str, Run]:
    """Return both variants of an experiment, ready to be trained.

    Args:
        folder: For the project.
        dataset: Content of its file.
        experiment: Likewise; of it, what a training needs is used.
        **sections: Of the experiment, in place of its own or beside them.
    """
    content = {name: experiment[name] for name in SECTIONS} | sections
    content["variants"] = {"adaptive": {"model": {"rank": "adaptive"}}}
    project = make_project(folder, dataset, content)
    runs = {name: project.run("fit", variant) for name, variant in OURS.items()}
    call(runs["rank 10"], "data")
    for run in runs.values():
        call(run, "graph")
        call(run, "partition")
    return runs


def fit_ours(run: Run, places: Sequence[str]) -> dict[str, Any]:
    """Train and evaluate; return errors, hartree, and facts."""
    summary, seconds = call(run, "train")
    call(run, "evaluate")
    errors = json.loads(run.metrics.read_text())["surface"]["errors"]
    result = {place: errors[place]["hartree"]["rmse"] for place in places}
    facts = {name: summary[name] for name in ("parameters", "node_ranks", "degrees")}
    return {**result, **facts, "seconds": seconds}


def fit_baseline(
    fit: Callable[[Problem], Fitted], problem: Problem, places: Sequence[str]
) -> dict[str, Any]:
    """Fit one baseline; return errors, hartree, and facts."""
    begin = time.perf_counter()
    fitted = fit(problem)
    seconds = time.perf_counter() - begin
    result = {place: compute_rmse(problem, fitted, place) for place in places}
    return {**result, **fitted.chosen, "seconds": seconds}


def make_part(x: np.ndarray, energy: np.ndarray) -> Subset:
    """Return points with energies, given in eV."""
    return Subset(torch.from_numpy(x), torch.from_numpy(energy / HARTREE))
