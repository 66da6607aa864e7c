"""Training steps of domains (parts) of structures, without the ranks that have the others.

Messages from other ranks are zeros: time, memory and bytes of messages are right, results are not.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from pipeline_core.config.sections import Link, TrainOptions
from pipeline_core.distributed.ranks import Ranks
from pipeline_core.distributed.world import World
from pipeline_core.profiling.calls import measure
from pipeline_core.profiling.measure import StepTimer
from pipeline_core.profiling.memory import find_used_bytes
from pipeline_core.profiling.side_by_side import Training
from pipeline_core.project.run import Run
from pipeline_core.training.balance.cost_model import CostModel, fit
from pipeline_core.training.micro_batches import DomainMicroBatch, make_divider
from pipeline_kernels.halo.transports import Messages, Wait

_REPEATS: Final = 3
_GROWTH: Final = 4
"""Size of a measured part over the size of the one before."""
_LEAST_ATOMS: Final = 4
"""Own atoms of the smallest part that is measured."""
_SECONDS: Final = 2.0
"""No larger part is tried after a step that took longer."""
_RANKS: Final = 16
"""Largest number of ranks whose parts are counted."""

Floats = NDArray[np.float64]
Rows = Mapping[str, NDArray[np.int64]]


@dataclass(frozen=True)
class MeasuredPart:
    """A measured step of one part.

    Attributes:
        own: Number of its own atoms.
        halo: Number of ghost atoms, whose features it receives from other ranks.
        seconds: Median of some steps.
        memory: Growth of memory during a step, bytes; None if the system does not report it.
        received: Bytes of all messages to it in a step.
        exchanges: Number of halo exchanges in a step.
    """

    own: int
    halo: int
    seconds: float
    memory: int | None
    received: int
    exchanges: int

    def predict_messages(self, link: Link, halo: float, peers: int) -> float:
        """Return the time of the messages of a step of another part, s.

        Args:
            link: Link between ranks.
            halo: Number of its ghost atoms.
            peers: Number of ranks that it receives them from.
        """
        return link.time(halo * self.received / self.halo, self.exchanges * peers)


class SilentTransport:
    """Transport to ranks that do not exist: it receives zeros.

    Args:
        rank: This rank.
        size: Number of ranks.

    Attributes:
        bytes_received: Bytes of all messages that would have arrived.
        n_starts: Number of started exchanges.
    """

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.bytes_sent = self.bytes_received = self.n_starts = 0

    def start(self, sent: Messages, received: Messages) -> Wait:
        """As `Transport.start`."""
        self.n_starts += 1
        self.bytes_sent += sum(tensor.nbytes for tensor in sent.values())
        self.bytes_received += sum(tensor.nbytes for tensor in received.values())
        for tensor in received.values():
            tensor.zero_()
        return lambda: None


def measure_part(
    calculate: Callable[[], object],
    transport: SilentTransport,
    rows: tuple[int, int],
    device: torch.device,
) -> MeasuredPart:
    """Measure time, memory and messages of one step of a part.

    Args:
        calculate: Computes the step.
        transport: Transport of the part.
        rows: Numbers of own atoms and of ghost atoms.
        device: Device of the calculation.
    """
    calculate()  # allocates what stays
    before = transport.bytes_received, transport.n_starts
    measured, calls = measure(calculate, device, _REPEATS), 2 + _REPEATS
    received = (transport.bytes_received - before[0]) // calls
    exchanges = (transport.n_starts - before[1]) // calls
    return MeasuredPart(*rows, measured.median, measured.memory, received, exchanges)


class Parts:
    """Makes and counts parts of the structures of a training, without other ranks.

    Args:
        run: The run.
        training: The training.
        device: Device of the calculation.
    """

    def __init__(self, run: Run, training: Training, device: torch.device) -> None:
        self._samples = training.samples
        self._divided = make_divider(run, training.task, Ranks(World(), device))
        self.costs: Floats = training.sampler.costs
        self.atoms: NDArray[np.int64] = np.asarray(training.sizes["atom"])

    def make(self, number: int, n_parts: int) -> tuple[DomainMicroBatch, SilentTransport]:
        """Return the part of the first of some ranks, and its transport."""
        transport = SilentTransport(0, n_parts)
        make = self._divided.divide_alone(self._samples, number, n_parts)
        return make(transport), transport

    def count(self, number: int, n_parts: int) -> Rows:
        """Count the parts of a structure, or 16 of them, kind -> (n_parts,); see `count_rows`."""
        make = self._divided.divide_alone(self._samples, number, n_parts)
        ranks = choose_ranks(n_parts)
        return _stack([count_rows(make(SilentTransport(rank, n_parts))) for rank in ranks])


def choose_ranks(n_ranks: int) -> list[int]:
    """Return the ranks whose parts are counted: all of them, or 16."""
    places = np.linspace(0, n_ranks - 1, min(n_ranks, _RANKS)).round().astype(int)
    ranks: list[int] = np.unique(places).tolist()
    return ranks


def count_rows(piece: DomainMicroBatch) -> dict[str, int]:
    """Return the numbers of own atoms, ghost atoms, edges and angles of a part, and of its peers.

    These are the ranks that it receives rows from.
    """
    n_own, inputs = len(piece.own_atoms), piece.inputs
    rows = {"atom": n_own, "halo": len(inputs["atomic_numbers"]) - n_own}
    rows["edge"] = len(inputs["edge_index"])
    rows["peers"] = 0 if piece.domain is None else len(piece.domain.atoms.receives)
    return rows | ({"angle": len(inputs["angle_edges"])} if "angle_edges" in inputs else {})


@dataclass(frozen=True)
class FittedParts:
    """Time and memory of a part, fitted to measured parts.

    Attributes:
        rows: Rows of the measured parts, kind -> (n_measured,).
        parts: Measured parts, by size.
        seconds: Cost model of the time of a step.
        growth: Cost model of the bytes that a step adds; None if the system does not report them.
        before: Bytes in use once the smallest part has been calculated; None likewise.
    """

    rows: Rows
    parts: Sequence[MeasuredPart]
    seconds: CostModel
    growth: CostModel | None
    before: int | None

    def predict_messages(self, counted: Rows, link: Link) -> float:
        """Return the time of the messages of a structure, s; zero if nothing is exchanged."""
        divided = [part for part in self.parts if part.halo]
        if not divided:
            return 0.0
        halo, peers = (int(counted[kind].max()) for kind in ("halo", "peers"))
        return divided[-1].predict_messages(link, halo, peers)


def measure_parts(
    training: Training,
    options: TrainOptions,
    parts: Parts,
    device: torch.device,
    units: int,
    limit: float | None,
) -> FittedParts:
    """Measure the smallest structure, and parts of the largest within limits of time and memory."""
    timer = StepTimer(training.task, options, device)
    measured: list[MeasuredPart] = []
    rows: list[dict[str, int]] = []
    before = None
    with _use_threads(units, device):
        for size, number, n_parts in _choose_parts(parts):
            if measured and not _is_feasible(measured[-1], size, limit):
                break
            piece, transport = parts.make(number, n_parts)
            rows.append(count_rows(piece))
            del rows[-1]["peers"]  # which cost no time of a part
            own = rows[-1]["atom"], rows[-1]["halo"]
            measured.append(measure_part(timer.make_call([piece]), transport, own, device))
            before = find_used_bytes(device) if before is None else before
    totals = _stack(rows)
    seconds = fit(totals, np.array([part.seconds for part in measured]))
    return FittedParts(totals, measured, seconds, _fit_growth(totals, measured), before)


def _stack(rows: Sequence[Mapping[str, int]]) -> dict[str, NDArray[np.int64]]:
    return {kind: np.array([one[kind] for one in rows]) for kind in rows[0]}


def _fit_growth(totals: Rows, measured: Sequence[MeasuredPart]) -> CostModel | None:
    """Fit the bytes that steps add, if any; None if the system does not report them."""
    grown = np.array([part.memory or 0 for part in measured])
    if any(part.memory is None for part in measured) or not grown.any():
        return None
    return fit({kind: rows[grown > 0] for kind, rows in totals.items()}, grown[grown > 0])


def _choose_parts(parts: Parts) -> list[tuple[float, int, int]]:
    """Return candidates by size: approximate own atoms, structure and number of parts."""
    largest, atoms = int(np.argmax(parts.costs)), parts.atoms
    most = max(1, int(atoms[largest]) // _LEAST_ATOMS)
    numbers = [_GROWTH**k for k in range(most.bit_length()) if _GROWTH**k <= most]
    divided = [2] if atoms[largest] > 1 else []  # so that messages are measured in any case
    chosen = {(int(np.argmin(parts.costs)), 1), *((largest, n) for n in (*numbers, *divided))}
    return sorted((atoms[number] / n, number, n) for number, n in chosen)


def _is_feasible(last: MeasuredPart, size: float, limit: float | None) -> bool:
    """Return True if a part of so many atoms may be tried after a smaller one."""
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
