"""Training steps of domains of a run's structures, without the ranks of the other domains."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from pipeline_core.config.sections import Link, TrainOptions
from pipeline_core.distributed.ranks import Ranks
from pipeline_core.distributed.world import World
from pipeline_core.profiling.measure import StepTimer
from pipeline_core.profiling.memory import find_used_bytes
from pipeline_core.profiling.parts import MeasuredPart, SilentTransport, measure_part
from pipeline_core.profiling.side_by_side import Training
from pipeline_core.project.run import Run
from pipeline_core.training.balance.cost_model import CostModel, fit
from pipeline_core.training.micro_batches import DomainMicroBatch, make_divider

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
class CountedParts:
    """Sizes of the parts of one structure.

    Attributes:
        rows: Own atoms, ghost atoms ("halo"), edges and angles of the parts, kind -> (n_parts,).
        peers: Largest number of ranks that a part receives rows from.
    """

    rows: Rows
    peers: int


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

    def count(self, number: int, n_parts: int) -> CountedParts:
        """Count the parts of a structure, or 16 of them."""
        make = self._divided.divide_alone(self._samples, number, n_parts)
        rows, peers = [], 0
        for rank in choose_ranks(n_parts):
            piece = make(SilentTransport(rank, n_parts))
            rows.append(count_rows(piece))
            if piece.domain is not None:
                peers = max(peers, len(piece.domain.atoms.receives))
        return CountedParts(
            {kind: np.array([one[kind] for one in rows]) for kind in rows[0]}, peers
        )


def choose_ranks(n_ranks: int) -> list[int]:
    """Return the ranks whose parts are counted: all of them, or 16."""
    places = np.linspace(0, n_ranks - 1, min(n_ranks, _RANKS)).round().astype(int)
    ranks: list[int] = np.unique(places).tolist()
    return ranks


def count_rows(piece: DomainMicroBatch) -> dict[str, int]:
    """Return the numbers of own atoms, ghost atoms, edges and angles of a part."""
    n_own, inputs = len(piece.own_atoms), piece.inputs
    rows = {"atom": n_own, "halo": len(inputs["atomic_numbers"]) - n_own}
    rows["edge"] = len(inputs["edge_index"])
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

    def predict_messages(self, counted: CountedParts, link: Link) -> float:
        """Return the time of the messages of a structure, s; zero if nothing is exchanged."""
        divided = [part for part in self.parts if part.halo]
        if not divided:
            return 0.0
        return divided[-1].predict_messages(link, float(counted.rows["halo"].max()), counted.peers)


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
            own = rows[-1]["atom"], rows[-1]["halo"]
            measured.append(measure_part(timer.make_call([piece]), transport, own, device))
            before = find_used_bytes(device) if before is None else before
    totals = {kind: np.array([one[kind] for one in rows]) for kind in rows[0]}
    seconds = fit(totals, np.array([part.seconds for part in measured]))
    return FittedParts(totals, measured, seconds, _fit_growth(totals, measured), before)


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
