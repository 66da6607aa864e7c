"""Trained runs whose flow maps nothing, their evaluation, and two ranks in one process."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import torch

from pipeline_core.distributed.ranks import Ranks
from pipeline_core.distributed.world import World
from pipeline_core.project.run import Run
from pipeline_core.testing.projects import call
from pipeline_gauge_flows.data.stage import make_data
from pipeline_gauge_flows.evaluation.evaluate import evaluate_flow
from pipeline_gauge_flows.evaluation.options import GaugeEvaluateOptions
from pipeline_gauge_flows.inference.infer import infer_flow
from pipeline_gauge_flows.inference.options import GaugeInferOptions
from plugins.gauge_flows.small import load_project, make_run, write_dataset

ONE = Ranks(World(), torch.device("cpu"))
IDLE = {"epochs": 1, "batch_size": 4, "precision": "64-true", "optimizer": {"lr": 1e-12}}
"""A training after which a flow is as fresh as before."""
SQUARE = {"lattice": {"extents": [4, 4]}, "masks": [{"mask": "direction"}]}
"""The section `graph` of a flow on the smallest torus."""
SIGMAS = 4.0
"""Errors by which a number may miss its exact value."""


def make_fresh_run(folder: Path, dataset: dict[str, Any] | None = None, **sections: Any) -> Run:
    """Return a trained run whose flow maps nothing, unless `train` says more.

    Args:
        folder: Where to.
        dataset: Content of a dataset file, whose data are made.
        **sections: Of the experiment.
    """
    model = {"layers": {"bins": 2, "hidden": [4]}, **sections.pop("model", {})}
    if model.get("prior") != "ensemble":
        model.setdefault("draws", {"train": 4, "val": 4})
    content = {"seed": 3, "train": IDLE, **sections, "model": model}
    run = make_run(folder, dataset, **content)
    call(run, "train")
    return run


def add_ensemble(run: Run, name: str, content: dict[str, Any]) -> Run:
    """Return a run that may name one more dataset, whose data are made."""
    folder = run.folder.parents[2]
    write_dataset(folder, name, content)
    dataset = load_project(folder).load_dataset(name)
    make_data(dataset)
    return replace(run, further={**run.further, name: dataset})


def replace_section(run: Run, stage: str, options: Any) -> Run:
    """Return a run with another section of a stage."""
    return replace(run, sections={**run.sections, stage: options})


HEATBATH = {"method": "heatbath", "n_configurations": 400, "thermalisation": 30}
THEORY = {"lattice": {"extents": [4, 4]}, "action": {"beta": 1.0}}


class _Rank:
    """One of two ranks, each of them a thread."""

    size, device = 2, torch.device("cpu")

    def __init__(self, rank: int, barrier: Barrier, values: list[Any]) -> None:
        self.rank, self._barrier, self._values = rank, barrier, values

    @property
    def is_rank_zero(self) -> bool:
        return self.rank == 0

    def gather(self, value: Any) -> list[Any]:
        self._values[self.rank] = value
        self._barrier.wait()
        values = list(self._values)
        self._barrier.wait()
        return values


def run_on_two_ranks(work: Callable[[Any], Any]) -> list[Any]:
    """Call `work(ranks)` on two ranks, and return what it returns on each."""
    barrier, values = Barrier(2, timeout=60), [None, None]
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(work, [_Rank(rank, barrier, values) for rank in range(2)]))


def call_infer(run, **options):
    summary = infer_flow(replace_section(run, "infer", GaugeInferOptions(**options)))
    return summary, run


def replace_options(run, **options):
    options = {"cost": None, "resamples": 100, **options}
    return replace_section(run, "evaluate", GaugeEvaluateOptions(**options))


def call_evaluate(run, **options):
    return evaluate_flow(replace_options(run, **options)), json.loads(run.metrics.read_text())


def compute_sigmas(value: dict[str, float], expected: float) -> float:
    return abs(value["value"] - expected) / value["error"]
