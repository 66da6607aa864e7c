"""What a training will take on more ranks, predicted from some of its own steps.

Steps are real ones: the model, the samples and the shares are those of the training, batches are
made beside the steps as there, and as many ranks compute at once as on a machine of the training.
They give the cost model by which whole epochs are simulated; adding gradients is the ring formula
of a measured, given or assumed network. Within a machine its latency is what steps that ranks do
together last longer than the slowest of them computes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
import torch
from pydantic import BaseModel

from pipeline_core.balance.cost_model import CostModel, fit
from pipeline_core.config.profile import Network, ProfileOptions
from pipeline_core.config.sections import PartitionOptions, TrainOptions
from pipeline_core.distributed.ranks import connect_ranks
from pipeline_core.distributed.threads import count_threads_per_rank
from pipeline_core.profiling.network import (
    ASSUMED,
    describe_network,
    fit_latency,
    measure_network,
)
from pipeline_core.profiling.projection import (
    Cluster,
    count_gradient_bytes,
    project_compute,
    simulate,
)
from pipeline_core.profiling.side_by_side import (
    LoadRun,
    Measured,
    Training,
    Wish,
    measure_side_by_side,
)
from pipeline_core.run import Run

_COUNT_BYTES: Final = 8
"""Of the count of a term of the loss, which ranks add before each step."""
_MOST_BESIDE: Final = 2
"""Ranks that are measured at once, in those that the cores can carry at once."""


@dataclass(frozen=True)
class Layout:
    """Where the ranks of a training run.

    Attributes:
        ranks: Their number.
        nodes: Number of machines, all like this one.
        units: Cores, or GPUs, of a machine.
        on_gpus: Whether they are GPUs.
    """

    ranks: int
    nodes: int
    units: int
    on_gpus: bool = False

    @property
    def ranks_per_node(self) -> int:
        """Ranks of the fullest machine."""
        return -(-self.ranks // self.nodes)

    @property
    def units_per_rank(self) -> int:
        """Cores, or GPUs, that a rank has, if only in turn with others."""
        return count_threads_per_rank(self.units, self.ranks_per_node)

    @property
    def at_once(self) -> int:
        """Ranks of a machine that compute at the same time."""
        return max(1, self.units // self.units_per_rank)

    @property
    def beside(self) -> int:
        """Ranks of a machine that are measured at once: no more than show how they share it.

        Those that have a GPU each share nothing.
        """
        return 1 if self.on_gpus else min(self.ranks_per_node, _MOST_BESIDE * self.at_once)

    @property
    def adding(self) -> int:
        """Ranks of a machine between which the network is measured."""
        return min(self.ranks_per_node, self.units) if self.on_gpus else self.beside

    @property
    def used_units(self) -> int:
        """Cores, or GPUs, that all ranks use."""
        return min(self.ranks * self.units_per_rank, self.nodes * self.units)


def plan_training(load: LoadRun, ranks: Sequence[int], nodes: int = 1) -> dict[str, Any]:
    """Predict steps and epochs of a training for numbers of ranks.

    Args:
        load: Returns the run, whose data, graph and partition are read; nothing is written. The
            processes that are measured call it, so it can be pickled.
        ranks: Numbers of ranks, rising.
        nodes: Machines like this one, for numbers of ranks that are not smaller.

    Returns:
        experiment, variant, device, units ("cores" or "GPUs") and units_per_node, epochs, networks
        ("here, 2 ranks" and other numbers, "between nodes", see `network.measure_network`),
        gradient_bytes, compute (the cost models, by cores of a rank and ranks that compute at once)
        and ranks: for each number ranks, nodes, units (used by all ranks), steps and step_s of an
        epoch, epoch_s, speedup (over the first), balance, communication (the part of the time that
        is none), efficiency (their product), memory (bytes of a rank), unit_hours of the training,
        and parts (see `projection.Epoch`). JSON-able.

    Raises:
        ValueError: Stages before the training have not run, or it is not done by the shared trainer
            or not divided by samples.
    """
    run = load()
    _require_shared_trainer(run, run.sections["train"])
    with connect_ranks(run.device, run.state) as world:
        device = world.device
    units = _count_units(device)
    layouts = [Layout(n, min(nodes, n), units, device.type == "cuda") for n in ranks]
    return _Planner(run, device).plan(layouts, load)


def _require_shared_trainer(run: Run, options: BaseModel) -> None:
    if not getattr(options, "uses_shared_trainer", False):
        raise ValueError(
            f"{run.experiment}: plan predicts trainings of the shared trainer, but plugin "
            f"{run.model_info.name!r} trains this one by itself; plan a variant that it leaves to "
            "the engine (train.method: trainer)"
        )
    if run.get_section("partition", PartitionOptions).parts == "graph":
        raise ValueError(
            f"{run.experiment}: plan predicts ranks that take whole samples, but partition.parts: "
            "graph divides each one; set it to samples to compare"
        )


def _count_units(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.device_count()
    return len(os.sched_getaffinity(0))


class _Planner:
    """Measures shares of a training, and simulates its epochs."""

    def __init__(self, run: Run, device: torch.device) -> None:
        self._run, self._device = run, device
        self._options = run.get_section("train", TrainOptions)
        self._training = Training(run, self._options, torch.device("cpu"))

    def plan(self, layouts: Sequence[Layout], load: LoadRun) -> dict[str, Any]:
        """Predict all layouts."""
        measured = {
            one: measure_side_by_side(load, Wish(one.ranks, one.units_per_rank), one.beside)
            for one in layouts
        }
        models = _fit_models(measured)
        networks = self._find_networks(measured, models)
        records = []
        for layout in layouts:
            network = networks.get(_name_network(layout))
            model = models[_name_company(layout)]
            records.append(self._predict(layout, model, network, measured[layout].memory))
        for record in records:
            record["speedup"] = records[0]["epoch_s"] / record["epoch_s"]
        return {
            "experiment": self._run.experiment,
            "variant": self._run.variant,
            "device": self._device.type,
            "units": "GPUs" if self._device.type == "cuda" else "cores",
            "units_per_node": layouts[0].units,
            "epochs": self._options.epochs,
            "gradient_bytes": count_gradient_bytes(self._training.task),
            "networks": networks,
            "compute": {name: model.coefficients for name, model in models.items()},
            "ranks": records,
        }

    def _find_networks(
        self, measured: Mapping[Layout, Measured], models: Mapping[str, CostModel]
    ) -> dict[str, dict[str, Any]]:
        """Return what is known of the network within this machine and between machines."""
        networks = {}
        for layout, steps in measured.items():
            name = _name_network(layout)
            if name in networks or layout.ranks == 1:
                continue
            if layout.nodes == 1:
                networks[name] = self._find_network_here(layout, steps, models)
                continue
            wanted = self._run.get_section("profile", ProfileOptions).projection
            given = wanted.network if wanted else None
            networks[name] = (
                {**describe_network(ASSUMED), "source": "assumed"}
                if given is None
                else describe_network(given)
            )
        return networks

    def _find_network_here(
        self, layout: Layout, steps: Measured, models: Mapping[str, CostModel]
    ) -> dict[str, Any]:
        record = measure_network(self._device, layout.adding)
        if steps.together is None:  # on GPUs
            return record
        plan = self._training.sampler.plan_epoch(0, layout.ranks)
        model = models[_name_company(layout)]
        computing = project_compute(
            plan, self._training.sizes, model, layout.beside, layout.at_once
        )
        network = Network(alpha=record["alpha"], bandwidth=record["bandwidth"])
        messages = [count_gradient_bytes(self._training.task), self._count_bytes()]
        network = fit_latency(network, messages, steps.together - computing, layout.beside)
        return {**record, "alpha": network.alpha, "source": f"steps of {layout.beside} ranks here"}

    def _count_bytes(self) -> int:
        return _COUNT_BYTES * len(self._training.task.objective.weights)

    def _predict(
        self,
        layout: Layout,
        model: CostModel,
        network: Mapping[str, Any] | None,
        memory: int | None,
    ) -> dict[str, Any]:
        known = network or ASSUMED.model_dump()  # of one rank, which adds nothing, there is none
        cluster = Cluster(
            model=model,
            network=Network(alpha=known["alpha"], bandwidth=known["bandwidth"]),
            gradient_bytes=count_gradient_bytes(self._training.task),
            count_bytes=self._count_bytes(),
            nodes=layout.nodes,
            at_once=layout.at_once,
        )
        plan = self._training.sampler.plan_epoch(0, layout.ranks)
        epoch = simulate(plan, self._training.sizes, cluster)
        busy = epoch.compute + epoch.idle
        balance, free = epoch.compute / busy, busy / epoch.seconds
        hours = self._options.epochs * epoch.seconds / 3600
        return {
            "ranks": layout.ranks,
            "nodes": layout.nodes,
            "units": layout.used_units,
            "steps": epoch.steps,
            "step_s": epoch.seconds / epoch.steps,
            "epoch_s": epoch.seconds,
            "balance": balance,
            "communication": free,
            "efficiency": balance * free,
            "memory": memory,
            "unit_hours": layout.used_units * hours,
            "parts": asdict(epoch),
        }


def _name_network(layout: Layout) -> str:
    """Return what adds the gradients of a layout, as the plan says it."""
    return "between nodes" if layout.nodes > 1 else f"here, {layout.adding} ranks"


def _name_company(layout: Layout) -> str:
    """Return what a cost model holds for, as the plan says it."""
    return f"{layout.units_per_rank} a rank, {layout.beside} at once"


def _fit_models(measured: Mapping[Layout, Measured]) -> dict[str, CostModel]:
    """Fit a cost model for each number of cores of a rank and of ranks that compute at once.

    Where these take turns at the cores, the model tells what each takes when it is its turn.
    """
    models = {}
    for name in dict.fromkeys(map(_name_company, measured)):
        some = {one: m for one, m in measured.items() if _name_company(one) == name}
        parts = list(some.values())
        totals = {k: np.concatenate([m.totals[k] for m in parts]) for k in parts[0].totals}
        turns = [m.seconds * min(1.0, one.at_once / one.beside) for one, m in some.items()]
        models[name] = fit(totals, np.concatenate(turns))
    return models
