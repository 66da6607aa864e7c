"""Prediction of time and memory of a training on more ranks, from some of its own steps.

Steps are real ones: model, samples and shares are those of the training, batches are prefetched as
in the training, and as many ranks compute at once as on one of its machines. The fitted cost model
gives simulated epochs; the all-reduce of gradients follows the ring formula for a measured, given
or assumed network. Within a machine its latency is the time of joint steps beyond the computing
time of the slowest rank. `domain_planning` plans trainings with domain decomposition.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel

from pipeline_core.config.sections import PartitionOptions, TrainOptions
from pipeline_core.distributed.ranks import connect_ranks
from pipeline_core.profiling.domain_planning import plan_domains
from pipeline_core.profiling.layout import Layout, describe_epoch, find_networks
from pipeline_core.profiling.network import fit_latency, read_link
from pipeline_core.profiling.projection import (
    count_gradient_bytes,
    list_reduced_bytes,
    predict_busy,
    simulate,
)
from pipeline_core.profiling.side_by_side import (
    LoadRun,
    Measured,
    Training,
    measure_side_by_side,
)
from pipeline_core.project.run import Run
from pipeline_core.training.balance.cost_model import CostModel, fit
from pipeline_core.training.division import find_large


def plan_training(load: LoadRun, ranks: Sequence[int], nodes: int = 1) -> dict[str, Any]:
    """Predict steps and epochs of a training for numbers of ranks.

    Args:
        load: Returns the run, whose data, graph and partition are read; nothing is written. Must
            be picklable, since the measured processes call it.
        ranks: Numbers of ranks, rising.
        nodes: Machines like this one, for numbers of ranks that are not smaller.

    Returns:
        experiment, variant, device, units ("cores" or "GPUs") and units_per_node, epochs, networks
        ("here, 2 ranks" and other numbers, "between nodes", see `network.measure_network`),
        gradient_bytes, compute (the cost models, by cores of a rank and ranks that compute at once)
        and ranks: for each number ranks, nodes, units (used by all ranks), steps and step_s of an
        epoch, epoch_s, speedup (over the first), balance, communication (the fraction of time
        without it), efficiency (their product), memory (bytes of the fullest rank), unit_hours of
        the training, and parts (see `projection.Epoch`). With `partition.parts: graph` also the
        entries of `domain_planning.plan_domains`. JSON-able.

    Raises:
        ValueError: Stages before the training have not run, it does not use the shared trainer,
            or ranks cannot divide its structures as required.
    """
    run = load()
    _require_shared_trainer(run, run.sections["train"])
    with connect_ranks(run.device, run.state) as world:
        device = world.device
    units = _count_units(device)
    layouts = [Layout(n, min(nodes, n), units, device.type == "cuda") for n in ranks]
    options = run.get_section("train", TrainOptions)
    planner = _Planner(run, device, options)
    divided = [one for one in layouts if planner.is_divided(one)]
    whole = [one for one in layouts if one not in divided]
    contents = []
    if divided:
        try:
            contents.append(plan_domains(run, device, divided))
        except ValueError:
            if run.get_section("partition", PartitionOptions).parts != "auto":
                raise
            whole = layouts  # as in the training, if structures cannot be divided
    if whole:
        contents.insert(0, planner.plan(whole, load))
    content = merge_plans(contents)
    records = content["ranks"]
    for record in records:
        record["speedup"] = records[0]["epoch_s"] / record["epoch_s"]
    return {
        "experiment": run.experiment,
        "variant": run.variant,
        "device": device.type,
        "units": "GPUs" if device.type == "cuda" else "cores",
        "units_per_node": units,
        "epochs": options.planned_epochs,
        "minutes": options.minutes,
        **content,
    }


def merge_plans(contents: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge plans of different numbers of ranks."""
    merged: dict[str, Any] = {}
    for content in contents:
        for name, value in content.items():
            existing = merged.get(name)
            if isinstance(value, dict) and existing is not None:
                merged[name] = {**value, **existing}
            elif isinstance(value, list) and existing is not None:
                merged[name] = [*existing, *value]
            else:
                merged[name] = value
    merged["ranks"].sort(key=lambda record: record["ranks"])
    return merged


def _require_shared_trainer(run: Run, options: BaseModel) -> None:
    if not getattr(options, "uses_shared_trainer", False):
        raise ValueError(
            f"{run.experiment}: plan predicts trainings of the shared trainer, but plugin "
            f"{run.model_info.name!r} trains this one by itself; plan a variant that it leaves to "
            "the engine (train.method: trainer)"
        )


def _count_units(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.device_count()
    return len(os.sched_getaffinity(0))


class _Planner:
    """Measures shares of a training, and simulates its epochs."""

    def __init__(self, run: Run, device: torch.device, options: TrainOptions) -> None:
        self._run, self._device, self._options = run, device, options
        self._training = Training(run, options, torch.device("cpu"))
        self._messages = list_reduced_bytes(self._training.task)

    def is_divided(self, layout: Layout) -> bool:
        """Return True if ranks of a layout divide large structures, as the training would."""
        parts = self._run.get_section("partition", PartitionOptions).parts
        if parts != "auto":
            return parts == "graph"
        return find_large(self._training.sampler, layout.ranks) is not None

    def plan(self, layouts: Sequence[Layout], load: LoadRun) -> dict[str, Any]:
        """Predict all layouts."""
        measured = {
            one: measure_side_by_side(
                load, one.ranks, one.beside, self._run.device, one.units_per_rank
            )
            for one in layouts
        }
        models = _fit_models(measured)
        networks = self._find_networks(measured, models)
        return {
            "gradient_bytes": count_gradient_bytes(self._training.task),
            "networks": networks,
            "compute": {name: model.coefficients for name, model in models.items()},
            "ranks": [
                self._predict(one, models[one.contention], networks.get(one.network), steps.memory)
                for one, steps in measured.items()
            ],
        }

    def _find_networks(
        self, measured: Mapping[Layout, Measured], models: Mapping[str, CostModel]
    ) -> dict[str, dict[str, Any]]:
        """Return the records of links, within this machine with the latency in joint steps."""
        networks = find_networks(self._run, self._device, measured)
        fitted: set[str] = set()
        for layout, steps in measured.items():
            if layout.nodes > 1 or layout.network in fitted or steps.together is None:
                continue
            fitted.add(layout.network)
            busy = self._predict_busy(layout, models[layout.contention])[:, : layout.beside]
            computing = simulate(busy, at_once=layout.at_once)
            rest = steps.together - computing.seconds / computing.steps
            record = networks[layout.network]
            link = fit_latency(read_link(record), self._messages, rest, layout.beside)
            source = f"steps of {layout.beside} ranks here"
            networks[layout.network] = {**record, "alpha": link.latency, "source": source}
        return networks

    def _predict(
        self,
        layout: Layout,
        model: CostModel,
        network: Mapping[str, Any] | None,
        memory: int | None,
    ) -> dict[str, Any]:
        adding = 0.0
        if network is not None:  # a single rank has none
            link = read_link(network)
            adding = sum(link.time_ring(n, layout.ranks) for n in self._messages)
        busy = self._predict_busy(layout, model)
        epoch = simulate(busy, adding, layout.nodes, layout.at_once)
        return describe_epoch(layout, epoch, memory, self._options)

    def _predict_busy(self, layout: Layout, model: CostModel) -> NDArray[np.float64]:
        plan = self._training.sampler.plan_epoch(0, layout.ranks)
        return predict_busy(plan, self._training.sizes, model)


def _fit_models(measured: Mapping[Layout, Measured]) -> dict[str, CostModel]:
    """Fit a cost model for each number of cores of a rank and of ranks that compute at once.

    Where ranks take turns at the cores, the model gives the time of a rank within its turn.
    """
    models = {}
    for name in dict.fromkeys(one.contention for one in measured):
        some = {one: m for one, m in measured.items() if one.contention == name}
        parts = list(some.values())
        totals = {k: np.concatenate([m.totals[k] for m in parts]) for k in parts[0].totals}
        turns = [m.seconds * min(1.0, one.at_once / one.beside) for one, m in some.items()]
        models[name] = fit(totals, np.concatenate(turns))
    return models
