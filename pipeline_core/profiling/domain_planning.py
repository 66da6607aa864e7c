"""Prediction of a training with domain decomposition, from steps of a few domains (parts).

Training steps of parts of the run's own structures are measured, of growing size, each without the
ranks of the other parts (see `parts`). Time and memory of a part are fitted by

    y = c + Σ_k c_k n_k,

over its numbers of rows n_k: own atoms, ghost atoms, edges and angles. For each number of ranks the
structures of the training are then divided as its ranks would divide them, and the rows of the
parts counted, so that no predicted part has to be calculated. Ranks exchange rows within each step,
so that a divided structure takes as long as its slowest part, plus the messages of the network.
Small structures are taken whole, as in the training.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from pipeline_core.config.profile import ProfileOptions
from pipeline_core.config.sections import Link, TrainOptions
from pipeline_core.profiling.layout import Layout, describe_epoch, find_networks
from pipeline_core.profiling.measure import find_memory_limit
from pipeline_core.profiling.network import read_link
from pipeline_core.profiling.parts import (
    FittedParts,
    Parts,
    Rows,
    choose_ranks,
    measure_parts,
)
from pipeline_core.profiling.projection import Epoch, count_gradient_bytes, list_reduced_bytes
from pipeline_core.profiling.side_by_side import Training
from pipeline_core.project.run import Run
from pipeline_core.system.memory import keep_freed_memory
from pipeline_core.system.seeds import use_deterministic
from pipeline_core.training.division import (
    find_whole_limit,
    require_divided_training,
    share_whole,
)

_COUNTED: Final = 32
"""Structures whose parts are counted, from the cheapest to the costliest; others lie between."""

Floats = NDArray[np.float64]


def plan_domains(run: Run, device: torch.device, layouts: Sequence[Layout]) -> dict[str, Any]:
    """Predict a training with `partition.parts: graph` for numbers of ranks.

    Args:
        run: Its data, graph and partition are read; nothing is written.
        device: Device of the training.
        layouts: Layouts of its ranks.

    Returns:
        gradient_bytes, networks, compute (coefficients of seconds, by cores of a rank), memory
        (coefficients of the bytes that a step adds; before: bytes in use before it), measured (see
        `MeasuredPart`, with its edges and angles) and ranks, as `planning.plan_training`, with the
        memory (bytes) and the seconds (of an epoch, without messages) of each rank.
    """
    keep_freed_memory()  # as the training does
    options = run.get_section("train", TrainOptions)
    with use_deterministic(options.deterministic):
        training = Training(run, options, device)
        require_divided_training(run, options, training.stored)
        parts = Parts(run, training, device)
        limit = find_memory_limit(run.get_section("profile", ProfileOptions), device)
        fits = {
            units: measure_parts(training, options, parts, device, units, limit)
            for units in dict.fromkeys(one.units_per_rank for one in layouts)
        }
    networks = find_networks(run, device, layouts)
    planner = _Planner(training, parts, options)
    records = [
        planner.predict(one, fits[one.units_per_rank], networks.get(one.network)) for one in layouts
    ]
    first = next(iter(fits.values()))
    measured = [
        asdict(part) | {kind: int(n[i]) for kind, n in first.rows.items() if kind != "atom"}
        for i, part in enumerate(first.parts)
    ]
    return {
        "gradient_bytes": count_gradient_bytes(training.task),
        "networks": networks,
        "compute": {f"{units} a rank": one.seconds.coefficients for units, one in fits.items()},
        "memory": {"before": first.before, **(first.growth.coefficients if first.growth else {})},
        "measured": measured,
        "ranks": records,
    }


class _Planner:
    """Prediction of epochs.

    Args:
        training: The training.
        parts: Its structures.
        options: Options of the training.
    """

    def __init__(self, training: Training, parts: Parts, options: TrainOptions) -> None:
        self._task, self._parts, self._options = training.task, parts, options
        order = np.argsort(parts.costs, kind="stable")
        places = np.linspace(0, len(order) - 1, min(len(order), _COUNTED)).round().astype(int)
        self._counted: list[int] = order[np.unique(places)].tolist()
        self._plan, self._capacity = training.sampler.plan_epoch(0, 1), training.sampler.capacity

    def predict(
        self,
        layout: Layout,
        fitted: FittedParts,
        network: Mapping[str, Any] | None,
    ) -> dict[str, Any]:
        """Return the record of a number of ranks."""
        n_ranks, costs = layout.ranks, self._parts.costs
        limit = find_whole_limit(costs, self._capacity, n_ranks)
        is_divided = costs > limit
        shared = [number for number in self._counted if is_divided[number]]
        whole = [number for number in self._counted if not is_divided[number]]
        parts = [self._parts.count(number, n_ranks) for number in shared]
        alone = [self._parts.count(number, 1) for number in whole]
        busy = [fitted.seconds.predict(one) for one in parts]
        own = [float(fitted.seconds.predict(one)[0]) for one in alone]
        # Ranks that share cores take turns: none is idle while one has work.
        turns = layout.ranks_per_node / layout.at_once
        lasts = self._add(shared, [max(one.max(), one.mean() * turns) for one in busy], is_divided)
        means = self._add(shared, [one.mean() for one in busy], is_divided)
        loads = self._share_whole(self._spread(whole, own), limit, n_ranks)
        communication = 0.0
        if network is not None:
            link = read_link(network)
            messages = [fitted.predict_messages(one, link) for one in parts]
            communication = self._add(shared, messages, is_divided)
            communication += self._reduce(link, n_ranks, int(is_divided.sum()))
        compute = means + float(loads.mean(1).sum())
        slowest = lasts + float(np.maximum(loads.max(1), loads.mean(1) * turns).sum())
        seconds = slowest + communication
        epoch = Epoch(len(self._plan), seconds, compute, communication, slowest - compute)
        memory = self._predict_memory([*parts, *alone], fitted)
        return {
            **describe_epoch(layout, epoch, max(memory) if memory else None, self._options),
            "divided": int(is_divided.sum()),
            "memory_of_ranks": memory,
            "seconds_of_ranks": [
                self._add(shared, [one[place] for one in busy], is_divided)
                + float(loads[:, rank].sum())
                for place, rank in enumerate(choose_ranks(n_ranks))
            ],
        }

    def _share_whole(self, seconds: Floats, limit: float, n_ranks: int) -> Floats:
        """Return the time of each rank for whole samples of each step, s, (n_steps, n_ranks)."""
        loads = np.zeros((len(self._plan), n_ranks))
        for number in range(len(self._plan)):
            some = self._plan.share(number, 0)
            _, whole, owners = share_whole(self._parts.costs, some, limit, n_ranks)
            loads[number] = np.bincount(owners, seconds[whole], n_ranks)
        return loads

    def _predict_memory(self, counted: Sequence[Rows], fitted: FittedParts) -> list[int] | None:
        """Return the bytes of each rank, by its largest part or whole structure."""
        growth, before = fitted.growth, fitted.before
        if growth is None or before is None:
            return None
        added = [growth.predict(one) for one in counted]
        return [round(before + one) for one in np.stack(np.broadcast_arrays(*added)).max(0)]

    def _reduce(self, link: Link, n_ranks: int, n_divided: int) -> float:
        """Return the time of all-reduces in an epoch (gradients, counts, predictions), s."""
        fields = [quantity.field for quantity in self._task.quantities]
        per_structure = [8 * int(np.prod(f.shape)) for f in fields if f.kind == "sample"]
        # Predictions of a structure and their gradients are all-reduced, too.
        times = ((len(self._plan), list_reduced_bytes(self._task)), (2 * n_divided, per_structure))
        return sum(
            count * link.time_ring(size, n_ranks) for count, sizes in times for size in sizes
        )

    def _add(
        self, numbers: Sequence[int], values: Sequence[float], which: NDArray[np.bool_]
    ) -> float:
        """Return the sum over some samples of values given for a few of them."""
        return float(self._spread(numbers, values)[which].sum())

    def _spread(self, numbers: Sequence[int], values: Sequence[float]) -> Floats:
        """Interpolate values of a few samples to all, linearly in cost, (n_samples,)."""
        if not numbers:
            return np.zeros(len(self._parts.costs))
        costs, first = np.unique(self._parts.costs[list(numbers)], return_index=True)
        spread: Floats = np.interp(self._parts.costs, costs, np.array(values)[first])
        return spread
