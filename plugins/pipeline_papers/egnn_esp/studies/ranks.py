"""Measured forward passes over a few processes of this machine, and the link between two of them.

Each rank does the work of the stage `infer` on a structure: its part of the network's passes, a
halo exchange of atoms after each layer, and an exchange of blocks at the end. Partitioning is not
measured.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline_atoms.domains import build_domain, choose_transport
from pipeline_atoms.structure import Structure
from pipeline_core.distributed.local_ranks import call_on_ranks
from pipeline_core.distributed.ranks import Ranks
from pipeline_egnn_esp.data.basis import Basis
from pipeline_egnn_esp.inference.forward import predict_blocks
from pipeline_egnn_esp.inference.memory import count_edge_bytes
from pipeline_egnn_esp.inference.slots import BlockSlots, assign_slots
from pipeline_egnn_esp.model.network import Network
from pipeline_egnn_esp.options import ESPOptions
from pipeline_kernels.halo import HaloPlan, Transport, exchange
from pipeline_papers.egnn_esp.studies.options import Scaling

Ints = NDArray[np.int64]

LINK_ROWS: Final = (1, 4, 16, 64, 256, 1024, 4096)
"""Rows of atoms that two ranks exchange to measure their link."""
_LINK_REPEATS: Final = 15


@dataclass(frozen=True)
class Job:
    """A structure divided over ranks.

    Attributes:
        structure: All atoms.
        owners: The rank that owns each atom, (n_atoms,).
        cutoff: Longest edge, Å.
    """

    structure: Structure
    owners: Ints
    cutoff: float


@dataclass(frozen=True)
class Passes:
    """Measured times, one row for each job, one column for each rank.

    Attributes:
        seconds: Median time of a pass, (n_jobs, n_ranks).
        communication: Part of this time in messages, waiting included, (n_jobs, n_ranks).
        link: Seconds of exchanges of `LINK_ROWS`; none if they were not measured.
    """

    seconds: NDArray[np.float64]
    communication: NDArray[np.float64]
    link: list[float]


def measure_passes(
    model: ESPOptions,
    basis: Basis,
    options: Scaling,
    jobs: Sequence[Job],
    device: torch.device,
    n_ranks: int,
) -> Passes:
    """Measure forward passes on ranks of this machine, and the link between two.

    Args:
        model: Sizes of the network; cutoffs are taken from the jobs.
        basis: Shells of the elements.
        options: Memory for a chunk of edges, and measured passes of a job.
        jobs: Structures of the passes.
        device: Device of the ranks.
        n_ranks: Their number.

    Raises:
        ValueError: A rank failed.
    """
    measure = partial(_measure_jobs, model=model, basis=basis, options=options, jobs=jobs)
    try:
        records = call_on_ranks(measure, n_ranks, device.type)
    except (ValueError, RuntimeError) as error:
        raise ValueError(
            f"profile.scaling: {n_ranks} processes on this machine failed ({error}); use fewer "
            "ranks or a smaller packing"
        ) from error
    return Passes(
        seconds=np.array([one["seconds"] for one in records]).T,
        communication=np.array([one["communication"] for one in records]).T,
        link=records[0]["link"],
    )


def _measure_jobs(
    ranks: Ranks, model: ESPOptions, basis: Basis, options: Scaling, jobs: Sequence[Job]
) -> dict[str, Any]:
    transport = choose_transport(ranks)
    times = [_time_job(model, basis, options, job, transport, ranks) for job in jobs]
    rows = (model.lmax + 1) ** 2, model.channels
    return {
        "seconds": [seconds for seconds, _ in times],
        "communication": [waiting for _, waiting in times],
        "link": _time_link(transport, ranks, rows) if ranks.size == 2 else [],
    }


def _time_job(
    model: ESPOptions, basis: Basis, options: Scaling, job: Job, transport: Transport, ranks: Ranks
) -> tuple[float, float]:
    """Return the median time of a pass of one job, and the part spent in messages."""
    torch.manual_seed(0)  # times do not depend on weights, but ranks must have the same
    bond = model.bond_cutoff
    nearer = {"bond_cutoff": bond and min(bond, job.cutoff / 2)}
    network = Network(model.model_copy(update=nearer), basis, job.cutoff)
    network = network.to(ranks.device).eval()
    slots = assign_slots(build_domain(job.structure, job.cutoff, job.owners, transport))
    chunk = max(1, options.work_bytes // count_edge_bytes(model, basis, 4, ranks.device.type))
    timed = [
        _time_pass(network, slots, Stopwatch(transport, ranks.device), chunk, ranks)
        for _ in range(1 + options.repeats)
    ][1:]
    middle = sorted(range(len(timed)), key=lambda k: timed[k][0])[len(timed) // 2]
    return timed[middle]


def _time_pass(
    network: Network, slots: BlockSlots, transport: Stopwatch, chunk: int, ranks: Ranks
) -> tuple[float, float]:
    slots = replace(slots, domain=replace(slots.domain, transport=transport))
    ranks.barrier()
    begin = time.perf_counter()
    predict_blocks(network, slots, chunk)
    _finish(ranks.device)
    return time.perf_counter() - begin, transport.seconds


class Stopwatch:
    """A transport that measures the time from posting messages to their arrival.

    Args:
        transport: Transport of the messages.
        device: Device, synchronised before each reading of the clock.

    Attributes:
        seconds: Time measured so far.
    """

    def __init__(self, transport: Transport, device: torch.device) -> None:
        self._transport, self._device = transport, device
        self.rank, self.size = transport.rank, transport.size
        self.seconds = 0.0

    @property
    def bytes_sent(self) -> int:
        """Bytes sent by this rank."""
        return self._transport.bytes_sent

    def start(self, sent: Any, received: Any) -> Any:
        """As `Transport.start`."""
        _finish(self._device)
        begin = time.perf_counter()
        wait = self._transport.start(sent, received)

        def finish() -> None:
            wait()
            _finish(self._device)
            self.seconds += time.perf_counter() - begin

        return finish


def _time_link(transport: Transport, ranks: Ranks, row: tuple[int, int]) -> list[float]:
    """Return the median seconds of exchanges of rows between two ranks, including packing."""
    medians = []
    for n in LINK_ROWS:
        plan, x = _make_pair(n, ranks, row)
        times = []
        for _ in range(1 + _LINK_REPEATS):
            ranks.barrier()
            begin = time.perf_counter()
            exchange(x, plan, transport)
            _finish(ranks.device)
            times.append(max(ranks.gather(time.perf_counter() - begin)))
        medians.append(float(np.median(times[1:])))
    return medians


def _make_pair(n: int, ranks: Ranks, row: tuple[int, int]) -> tuple[HaloPlan, Tensor]:
    """Return a plan by which each of two ranks sends all its `n` rows to the other."""
    labels, nodes = torch.arange(2 * n) // n, torch.arange(2 * n)
    edges = torch.stack([nodes, (nodes + n) % (2 * n)], dim=1)
    plan = HaloPlan.of(labels, edges, ranks.rank, 2).to(ranks.device)
    return plan, torch.zeros(n, *row, device=ranks.device)


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
