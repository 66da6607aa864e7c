"""What a training whose structures ranks divide will take, predicted from steps of a few parts.

Training steps of parts of the run's own structures are measured, of growing size, each without the
ranks that have the other parts (see `parts`). To these are fitted seconds and bytes of a part,

    y = c + Σ_k c_k n_k,

over the rows n_k that it has: own atoms, atoms of the halo, edges and angles. The structures of the
training are then divided as its ranks would divide them, for each number of ranks, and the parts
counted: so no part that is predicted has to fit this machine. Ranks exchange rows within each step,
so that a structure lasts as long as its slowest part; messages take what the network takes.
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

from pipeline_core.balance.cost_model import CostModel, fit
from pipeline_core.config.profile import Network, ProfileOptions
from pipeline_core.config.sections import TrainOptions
from pipeline_core.distributed.division import DividedSplits
from pipeline_core.distributed.pieces import PartPiece
from pipeline_core.distributed.ranks import Ranks
from pipeline_core.distributed.world import World
from pipeline_core.profiling.layout import Layout, describe_epoch
from pipeline_core.profiling.measure import StepTimer, find_memory_limit
from pipeline_core.profiling.memory import find_used_bytes
from pipeline_core.profiling.network import (
    choose_network,
    compute_ring_seconds,
    measure_network,
)
from pipeline_core.profiling.parts import MeasuredPart, SilentTransport, measure_part
from pipeline_core.profiling.projection import Epoch, count_gradient_bytes, count_term_bytes
from pipeline_core.profiling.side_by_side import Training
from pipeline_core.run import Run
from pipeline_core.seeds import use_deterministic
from pipeline_core.training.allocator import keep_freed_memory
from pipeline_core.training.division import require_divided_training

_GROWTH: Final = 4
"""Size of a measured part in that of the one before."""
_LEAST_ATOMS: Final = 4
"""Own atoms of the smallest part that is measured."""
_SECONDS: Final = 2.0
"""No larger part is tried after one whose step took so long."""
_COUNTED: Final = 32
"""Structures whose parts are counted, from the cheapest to the costliest; others lie between."""
_RANKS: Final = 16
"""Ranks whose parts are counted, of more."""

Floats = NDArray[np.float64]
Rows = Mapping[str, NDArray[np.int64]]


@dataclass(frozen=True)
class CountedParts:
    """The parts of one structure.

    Attributes:
        rows: Own atoms, halo, edges and angles of the parts, kind -> (n_parts,).
        peers: Most ranks that one of them gets rows from.
    """

    rows: Rows
    peers: int


class Parts:
    """Makes and counts parts of the structures of a training, without other ranks.

    Args:
        run: The run.
        training: What is trained.
        device: Where parts are calculated.
    """

    def __init__(self, run: Run, training: Training, device: torch.device) -> None:
        self._samples = training.samples
        self._divided = DividedSplits(run, training.task, Ranks(World(), device))
        self.costs: Floats = training.sampler.costs
        self.atoms: NDArray[np.int64] = np.asarray(training.sizes["atom"])

    def make(self, number: int, n_parts: int) -> tuple[PartPiece, SilentTransport]:
        """Return the part of the first of some ranks, and what it exchanges by."""
        transport = SilentTransport(0, n_parts)
        make = self._divided.divide_alone(self._samples, number, n_parts)
        return make(transport), transport

    def count(self, number: int, n_parts: int) -> CountedParts:
        """Count the parts of a structure, or 16 of them."""
        make = self._divided.divide_alone(self._samples, number, n_parts)
        shown = np.unique(np.linspace(0, n_parts - 1, min(n_parts, _RANKS)).round().astype(int))
        pieces = [make(SilentTransport(rank, n_parts)) for rank in shown.tolist()]
        rows = [count_rows(piece) for piece in pieces]
        peers = [len(piece.domain.atoms.receives) for piece in pieces if piece.domain is not None]
        kinds = {kind: np.array([one[kind] for one in rows]) for kind in rows[0]}
        return CountedParts(kinds, max(peers, default=0))


def count_rows(piece: PartPiece) -> dict[str, int]:
    """Return the own atoms, the atoms of the halo, the edges and the angles of a part."""
    n_own, inputs = len(piece.own_atoms), piece.inputs
    rows = {"atom": n_own, "halo": len(inputs["atomic_numbers"]) - n_own}
    rows["edge"] = len(inputs["edge_index"])
    return rows | ({"angle": len(inputs["angle_edges"])} if "angle_edges" in inputs else {})


@dataclass(frozen=True)
class FittedParts:
    """What a part takes, fitted to measured ones.

    Attributes:
        rows: Of the measured parts, kind -> (n_measured,).
        parts: Measured, by size.
        seconds: Of a step.
        growth: Bytes that a step adds, in place of seconds; None if the system does not tell.
    """

    rows: Rows
    parts: Sequence[MeasuredPart]
    seconds: CostModel
    growth: CostModel | None

    def predict_messages(self, counted: CountedParts, network: Network) -> float:
        """Return the seconds of the messages of a structure; none where nothing is exchanged."""
        divided = [part for part in self.parts if part.halo]
        if not divided:
            return 0.0
        last = divided[-1]
        received = float(counted.rows["halo"].max()) * last.received / last.halo
        return last.exchanges * counted.peers * network.alpha + received / network.bandwidth


def plan_domains(run: Run, device: torch.device, layouts: Sequence[Layout]) -> dict[str, Any]:
    """Predict a training with `partition.parts: graph` for numbers of ranks.

    Args:
        run: Its data, graph and partition are read; nothing is written.
        device: Where it trains.
        layouts: Where its ranks run.

    Returns:
        gradient_bytes, networks, compute (coefficients of seconds, by cores of a rank), memory
        (coefficients of the bytes that a step adds; before: those in use before it), measured (see
        `MeasuredPart`, with its edges and angles) and ranks, as `planning.plan_training`, with the
        memory (bytes) and the seconds (of an epoch, messages left out) of each rank.
    """
    keep_freed_memory()  # as the training does
    options = run.get_section("train", TrainOptions)
    with use_deterministic(options.deterministic):
        training = Training(run, options, device)
        require_divided_training(run, options, training.samples)
        parts = Parts(run, training, device)
        before = find_used_bytes(device)
        limit = find_memory_limit(run.get_section("profile", ProfileOptions), device)
        fits = {
            units: _measure(training, options, parts, device, units, limit)
            for units in dict.fromkeys(one.units_per_rank for one in layouts)
        }
    networks = _find_networks(run, device, layouts)
    planner = _Planner(training, parts, options.epochs, before)
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
        "networks": {name: record for name, (_, record) in networks.items()},
        "compute": {f"{units} a rank": one.seconds.coefficients for units, one in fits.items()},
        "memory": {"before": before, **(first.growth.coefficients if first.growth else {})},
        "measured": measured,
        "ranks": records,
    }


def _measure(
    training: Training,
    options: TrainOptions,
    parts: Parts,
    device: torch.device,
    units: int,
    limit: float | None,
) -> FittedParts:
    """Measure the smallest structure and parts of the largest one, as far as time and memory go."""
    timer = StepTimer(training.task, options, device)
    measured: list[MeasuredPart] = []
    rows: list[dict[str, int]] = []
    with _use_threads(units, device):
        for size, number, n_parts in _choose_parts(parts):
            if measured and not _is_feasible(measured[-1], size, limit):
                break
            piece, transport = parts.make(number, n_parts)
            rows.append(count_rows(piece))
            own = rows[-1]["atom"], rows[-1]["halo"]
            measured.append(measure_part(timer.make_call([piece]), transport, own, device))
    totals = {kind: np.array([one[kind] for one in rows]) for kind in rows[0]}
    seconds = fit(totals, np.array([part.seconds for part in measured]))
    grown = [part.memory for part in measured if part.memory]
    growth = fit(totals, np.array(grown)) if len(grown) == len(measured) else None
    return FittedParts(totals, measured, seconds, growth)


def _choose_parts(parts: Parts) -> list[tuple[float, int, int]]:
    """Return own atoms, about, structure and number of parts of what may be measured, by size."""
    largest, atoms = int(np.argmax(parts.costs)), parts.atoms
    most = max(1, int(atoms[largest]) // _LEAST_ATOMS)
    numbers = [_GROWTH**k for k in range(most.bit_length()) if _GROWTH**k <= most]
    chosen = {(int(np.argmin(parts.costs)), 1), *((largest, n) for n in numbers)}
    return sorted((atoms[number] / n, number, n) for number, n in chosen)


def _is_feasible(last: MeasuredPart, size: float, limit: float | None) -> bool:
    """Return whether a part of so many atoms may be tried after a smaller one."""
    fits = limit is None or last.memory is None or last.memory * size / last.own <= limit
    return fits and last.seconds <= _SECONDS


@contextmanager
def _use_threads(units: int, device: torch.device) -> Iterator[None]:
    """Compute on as many cores as a rank has."""
    before = torch.get_num_threads()
    if device.type == "cpu":
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", units)))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _find_networks(
    run: Run, device: torch.device, layouts: Sequence[Layout]
) -> dict[str, tuple[Network, dict[str, Any]]]:
    """Return what is known of the network within this machine and between machines."""
    networks = {}
    for layout in layouts:
        if layout.ranks == 1 or layout.network in networks:
            continue
        if layout.nodes == 1:
            record = measure_network(device, layout.adding)
            network = Network(alpha=record["alpha"], bandwidth=record["bandwidth"])
            networks[layout.network] = network, record
        else:
            given = run.get_section("profile", ProfileOptions).projection
            networks[layout.network] = choose_network(given)
    return networks


class _Planner:
    """Predicts epochs.

    Args:
        training: What is trained.
        parts: Its structures.
        n_epochs: Of the training.
        before: Bytes in use before a step; None if the system does not tell.
    """

    def __init__(self, training: Training, parts: Parts, n_epochs: int, before: int | None) -> None:
        self._task, self._parts, self._n_epochs = training.task, parts, n_epochs
        self._before, order = before, np.argsort(parts.costs, kind="stable")
        places = np.linspace(0, len(order) - 1, min(len(order), _COUNTED)).round().astype(int)
        self._counted: list[int] = order[np.unique(places)].tolist()
        self._n_steps = len(training.sampler.plan_epoch(0, 1))

    def predict(
        self,
        layout: Layout,
        fitted: FittedParts,
        known: tuple[Network, dict[str, Any]] | None,
    ) -> dict[str, Any]:
        """Return the record of a number of ranks."""
        counted = [self._parts.count(number, layout.ranks) for number in self._counted]
        busy = np.stack([fitted.seconds.predict_batch_seconds(one.rows) for one in counted])
        # Ranks that share cores take turns: none is idle while one has work.
        work = busy.mean(1) * layout.ranks_per_node / layout.at_once
        slowest = self._sum_over(np.maximum(busy.max(1), work))
        communication, compute = 0.0, self._sum_over(busy.mean(1))
        if known is not None:
            network = known[0]
            messages = [fitted.predict_messages(one, network) for one in counted]
            communication = self._sum_over(np.array(messages)) + self._add_up(network, layout.ranks)
        seconds = slowest + communication
        epoch = Epoch(self._n_steps, seconds, compute, communication, slowest - compute)
        memory = self._predict_memory(counted, fitted.growth)
        fullest = None if memory is None else max(memory)
        return {
            **describe_epoch(layout, epoch, fullest, self._n_epochs),
            "memory_of_ranks": memory,
            "seconds_of_ranks": [self._sum_over(column) for column in busy.T],
        }

    def _predict_memory(
        self, counted: Sequence[CountedParts], growth: CostModel | None
    ) -> list[int] | None:
        """Return the bytes of each rank, whose largest part takes most."""
        if growth is None or self._before is None:
            return None
        added = np.stack([growth.predict_batch_seconds(one.rows) for one in counted]).max(0)
        return [round(self._before + one) for one in added.tolist()]

    def _add_up(self, network: Network, n_ranks: int) -> float:
        """Return the seconds of an epoch in which ranks add gradients, counts and predictions."""
        per_step = [count_gradient_bytes(self._task), count_term_bytes(self._task)]
        fields = [quantity.field for quantity in self._task.quantities]
        per_structure = [8 * int(np.prod(f.shape)) for f in fields if f.kind == "sample"]
        times = (
            (self._n_steps, per_step),
            (len(self._parts.costs), per_structure),
        )
        return sum(
            count * compute_ring_seconds(network, size, n_ranks)
            for count, sizes in times
            for size in sizes
        )

    def _sum_over(self, values: Floats) -> float:
        """Return the sum over all structures of something that some are known of."""
        costs, first = np.unique(self._parts.costs[self._counted], return_index=True)
        return float(np.interp(self._parts.costs, costs, values[first]).sum())
