"""Stage `profile`: projected time of data parallel epochs.

Each device takes an equal share of the points of a step, then gradients are summed by an all-reduce
(section 3 of doi:10.4203/ccc.12.2.4). Both are measured here one after the other: an epoch of one
share alone, by the plugin and by plain torch, and the speed at which two processes of this machine
sum gradients. The epoch of several devices is the sum of the two, a projection.
"""

import time
from copy import deepcopy
from functools import partial
from typing import Any, Final

import numpy as np
import torch

from pipeline_core.distributed.ranks import Ranks
from pipeline_core.evaluation.trained import load_trained_task
from pipeline_core.profiling.network import describe_link, measure_network, read_link
from pipeline_core.profiling.study import write_profile
from pipeline_core.project.run import Run
from pipeline_core.system.seeds import use_deterministic
from pipeline_htfbr.model import Surface
from pipeline_htfbr.options import HTTrainOptions
from pipeline_htfbr.training.descent import Descent
from pipeline_htfbr.training.fit import Method
from pipeline_htfbr.training.resident import RESIDENT
from pipeline_htfbr.training.shares import Plan
from pipeline_htfbr.training.tabulated import Table, tabulate
from pipeline_papers.htfbr.studies.dataloader import DATALOADER
from pipeline_papers.htfbr.studies.options import SharingOptions

METHODS: Final = {"resident": RESIDENT, "dataloader": DATALOADER}
"""Our method, and the baseline of the paper."""

_SECONDS: Final = 1.0
"""Minimum duration for which epochs of a share are measured."""


def profile_sharing(run: Run) -> dict[str, Any] | None:
    """Measure the epochs of shares and project epochs on several devices; write `run.profile`.

    Rank 0 does all the work.

    Returns:
        Seconds of a projected epoch, by method and number of devices; None if the run selects no
        shares.

    Raises:
        ValueError: `run.model` is missing or not of this run, or the network cannot be measured.
    """
    options = run.get_section("profile", SharingOptions)
    if not options.shares:
        return None
    training = run.get_section("train", HTTrainOptions)
    with use_deterministic(training.deterministic):
        content = write_profile(run, partial(project_sharing, run, options, training))
    if not content:
        return {}
    summary: dict[str, dict[str, float]] = {method: {} for method in METHODS}
    for entry in content["projection"]:
        summary[entry["strategy"]][f"{entry['ranks']} devices"] = entry["seconds"]
    return summary


def project_sharing(
    run: Run, options: SharingOptions, training: HTTrainOptions, ranks: Ranks
) -> dict[str, Any]:
    """Return the content of the artifact of the stage.

    Args:
        run: Run whose trained surface and points are read.
        options: Numbers of devices.
        training: Points of a step, and the optimizer.
        ranks: The ranks, with their device; one rank measures.

    Returns:
        device, threads, gradient_bytes, network, and projection: of each method and number of
        devices the mode strong, strategy (the method), ranks, points (of the largest share of an
        epoch), steps, seconds of an epoch, and its parts compute (measured) and communication.
    """
    module = load_trained_task(run, ranks.device).module
    assert isinstance(module, Surface)
    (table,) = tabulate(run, module, gradients=False, splits=("train",))
    n_bytes = sum(p.numel() * p.element_size() for p in module.parameters())
    given = options.network
    network = measure_network(ranks.device) if given is None else describe_link(given)
    link = read_link(network)
    records = []
    for name, method in METHODS.items():
        for n in options.shares:
            # The first of several devices has the largest share.
            sizes = {"n_points": len(table), "capacity": len(table), "n_ranks": n}
            plan = Plan(batch_size=training.batch_size, seed=run.seed, rank=0, **sizes)
            steps = plan.plan_epoch(0)
            compute = _measure_epoch(method, plan, table, deepcopy(module), training, ranks)
            adding = len(steps) * link.time_ring(n_bytes, n)
            facts = {"mode": "strong", "strategy": name, "ranks": n, "steps": len(steps)}
            facts["points"] = sum(len(batch) for step in steps for batch in step.batches)
            parts = {"compute": compute, "communication": adding}
            records.append({**facts, "seconds": sum(parts.values()), **parts})
    return {
        "device": ranks.device.type,
        "threads": torch.get_num_threads(),
        "gradient_bytes": n_bytes,
        "network": network,
        "projection": records,
    }


def _measure_epoch(
    method: Method,
    plan: Plan,
    table: Table,
    module: Surface,
    training: HTTrainOptions,
    ranks: Ranks,
) -> float:
    """Return the median time of an epoch of a share, s, after one epoch for warm-up."""
    steps = method.steps(table, plan, ranks.device)
    descent = Descent(module, method.forward(module), training, ranks)
    seconds: list[float] = []
    while len(seconds) < 4 or sum(seconds[1:]) < _SECONDS:
        begin = time.perf_counter()
        for step in steps(len(seconds)):
            descent.step(*step)
        if ranks.device.type == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    return float(np.median(seconds[1:]))
