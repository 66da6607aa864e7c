"""What a training will take on more ranks, predicted from some of its own steps.

Steps are real ones: the model, the samples and the shares are those of the training, and batches
are made beside the steps as there, on as many cores as a rank would have. They give the cost model
by which whole epochs are simulated; adding gradients is the ring formula of a measured, given or
assumed network.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel

from pipeline_core.balance.cost_model import CostModel, fit
from pipeline_core.balance.partitioning import Shares, read_shares
from pipeline_core.config.profile import Network, ProfileOptions
from pipeline_core.config.sections import PartitionOptions, TrainOptions
from pipeline_core.distributed.pieces import Piece
from pipeline_core.distributed.ranks import connect_ranks
from pipeline_core.distributed.threads import count_threads_per_rank, limit_numpy_threads
from pipeline_core.profiling.measure import StepTimer
from pipeline_core.profiling.memory import find_used_bytes
from pipeline_core.profiling.network import describe_network, measure_network
from pipeline_core.profiling.projection import Cluster, simulate
from pipeline_core.run import Run
from pipeline_core.seeds import use_deterministic
from pipeline_core.task import DrawnSamples, Samples, Task, build_task
from pipeline_core.training.division import make_sampler
from pipeline_core.training.start import initialize_weights, start_metadata
from pipeline_kernels.packing import Plan

ASSUMED: Final = Network(alpha=20e-6, bandwidth=10e9)
"""Between nodes where nothing better is known: 100 Gbit/s, of which four fifths are used."""

_STEPS: Final = 6
"""Measured steps of each number of ranks, after two that do not count."""
_COUNT_BYTES: Final = 8
"""Of the count of a term of the loss, which ranks add before each step."""

Sizes = Mapping[str, NDArray[np.int64]]


@dataclass(frozen=True)
class Layout:
    """Where the ranks of a training run.

    Attributes:
        ranks: Their number.
        nodes: Number of machines, all like this one.
        units: Cores, or GPUs, of a machine.
    """

    ranks: int
    nodes: int
    units: int

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
    def used_units(self) -> int:
        """Cores, or GPUs, that all ranks use."""
        return min(self.ranks * self.units_per_rank, self.nodes * self.units)


@dataclass(frozen=True)
class Measured:
    """Steps of one rank of several.

    Attributes:
        totals: Rows of each kind in the share of each step, kind -> (n_steps,).
        seconds: Of each step, (n_steps,).
        memory: Bytes of a rank: before the steps, and what a step adds; None if the system does
            not tell.
    """

    totals: Sizes
    seconds: NDArray[np.float64]
    memory: int | None


def plan_training(run: Run, ranks: Sequence[int], nodes: int = 1) -> dict[str, Any]:
    """Predict steps and epochs of a training for numbers of ranks.

    Args:
        run: Its data, graph and partition are read; nothing is written.
        ranks: Numbers of ranks, rising.
        nodes: Machines like this one, for numbers of ranks that are not smaller.

    Returns:
        experiment, variant, device, units ("cores" or "GPUs") and units_per_node, epochs, networks
        ("here" and "between nodes", see `network.measure_network`), gradient_bytes, compute (the
        cost models, by cores of a rank) and ranks: for each number ranks, nodes, units (used by
        all ranks), steps and step_s of an epoch, epoch_s, speedup (over the first), balance,
        communication (the part of the time that is none), efficiency (their product), memory
        (bytes of a rank), unit_hours of the training, and parts (see `projection.Epoch`).
        JSON-able.

    Raises:
        ValueError: Stages before the training have not run, or it is not done by the shared trainer
            or not divided by samples.
    """
    _require_shared_trainer(run, run.sections["train"])
    options = run.get_section("train", TrainOptions)
    with connect_ranks(run.device, run.state) as world, use_deterministic(options.deterministic):
        task = build_task(run, start_metadata(options, run.model_info))
        initialize_weights(task.module, options, run.model_info, fresh=True)
        task.module.to(world.device)
        planner = _Planner(run, task, options, world.device)
        units = _count_units(world.device)
        layouts = [Layout(n, min(nodes, n), units) for n in ranks]
        with limit_numpy_threads():
            return planner.plan(layouts)


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

    def __init__(self, run: Run, task: Task, options: TrainOptions, device: torch.device) -> None:
        self._run, self._task, self._options, self._device = run, task, options, device
        stored = task.samples("train")
        if not len(stored):
            raise ValueError(f"{run.experiment}: the split 'train' of its dataset is empty")
        shares = read_shares(run.partition, "train", len(stored))
        self._samples: Samples = stored.of_epoch(0) if isinstance(stored, DrawnSamples) else stored
        self._sizes = _choose_sizes(shares)
        self._sampler = make_sampler(shares, options, run.seed)
        self._timer = StepTimer(task, options, device)

    def plan(self, layouts: Sequence[Layout]) -> dict[str, Any]:
        """Predict all layouts."""
        networks = self._find_networks(layouts)
        plans = {one: self._sampler.plan_epoch(0, one.ranks) for one in layouts}
        measured = {one: self._measure(one, plan) for one, plan in plans.items()}
        models = _fit_models(measured)
        trained = [p for p in self._task.module.parameters() if p.requires_grad]
        gradient_bytes = sum(p.numel() * p.element_size() for p in trained)
        records: list[dict[str, Any]] = []
        for layout, plan in plans.items():
            network = networks["between nodes" if layout.nodes > 1 else "here"]
            cluster = Cluster(
                model=models[layout.units_per_rank],
                network=Network(alpha=network["alpha"], bandwidth=network["bandwidth"]),
                gradient_bytes=gradient_bytes,
                count_bytes=_COUNT_BYTES * len(self._task.objective.weights),
                nodes=layout.nodes,
                at_once=layout.at_once,
            )
            records.append(self._describe(layout, plan, cluster, measured[layout].memory))
        for record in records:
            record["speedup"] = records[0]["epoch_s"] / record["epoch_s"]
        return {
            "experiment": self._run.experiment,
            "variant": self._run.variant,
            "device": self._device.type,
            "units": "GPUs" if self._device.type == "cuda" else "cores",
            "units_per_node": layouts[0].units,
            "epochs": self._options.epochs,
            "gradient_bytes": gradient_bytes,
            "networks": networks,
            "compute": {
                str(units): {"units_per_rank": units, **model.coefficients}
                for units, model in models.items()
            },
            "ranks": records,
        }

    def _measure(self, layout: Layout, plan: Plan) -> Measured:
        """Time steps of rank 0 on as many cores as it would have."""
        steps = []
        with _use_cores(layout.units_per_rank, self._device):
            for number, seconds in self._timer.measure_steps(
                plan, lambda step: self._sampler.share(step, 0), self._load, _STEPS
            ):
                steps.append((plan.share(number, 0), seconds))
            memory = self._timer.measure_memory(
                [self._load(b) for b in self._sampler.share(plan.step(0), 0).micro_batches]
            )
        totals = {
            kind: np.array([rows[share].sum() for share, _ in steps])
            for kind, rows in self._sizes.items()
        }
        used = find_used_bytes(self._device)
        total = None if memory is None or used is None else used + memory
        return Measured(totals, np.array([seconds for _, seconds in steps]), total)

    def _load(self, numbers: NDArray[np.int64]) -> Piece:
        return Piece(self._samples.batch(numbers.tolist()))

    def _find_networks(self, layouts: Sequence[Layout]) -> dict[str, dict[str, Any]]:
        """Return what is known of the network within this machine and between machines."""
        networks = {"here": measure_network(self._device)}
        if any(one.nodes > 1 for one in layouts):
            wanted = self._run.get_section("profile", ProfileOptions).projection
            given = wanted.network if wanted else None
            networks["between nodes"] = (
                {**describe_network(ASSUMED), "source": "assumed"}
                if given is None
                else describe_network(given)
            )
        return networks

    def _describe(
        self, layout: Layout, plan: Plan, cluster: Cluster, memory: int | None
    ) -> dict[str, Any]:
        epoch = simulate(plan, self._sizes, cluster)
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


def _choose_sizes(shares: Shares) -> dict[str, NDArray[np.int64]]:
    """Return what the time of a share is a function of: its rows, or its samples."""
    sizes = {kind: np.asarray(rows) for kind, rows in shares.sizes.items()}
    return sizes or {"sample": np.ones(len(shares.costs), np.int64)}


def _fit_models(measured: Mapping[Layout, Measured]) -> dict[int, CostModel]:
    """Fit a cost model for each number of cores that a rank may have."""
    models = {}
    for units in dict.fromkeys(layout.units_per_rank for layout in measured):
        some = [m for layout, m in measured.items() if layout.units_per_rank == units]
        totals = {k: np.concatenate([m.totals[k] for m in some]) for k in some[0].totals}
        models[units] = fit(totals, np.concatenate([m.seconds for m in some]))
    return models


@contextmanager
def _use_cores(n_cores: int, device: torch.device) -> Iterator[None]:
    """Let this thread, and those that it starts, run on some cores alone."""
    if device.type == "cuda":
        yield
        return
    cores, threads = os.sched_getaffinity(0), torch.get_num_threads()
    os.sched_setaffinity(0, sorted(cores)[:n_cores])
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", n_cores)))
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)
        torch.set_num_threads(threads)
