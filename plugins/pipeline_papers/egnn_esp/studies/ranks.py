"""Measured forward passes over a few processes of this machine, and the link between two of them.

Each rank does the work of the stage `infer` on a structure: its part of the network's passes, a
halo exchange of atoms after each layer, and an exchange of blocks at the end. Partitioning is not
measured.

Run as a program by torchrun, this module is one of the ranks:

    torchrun --nproc-per-node=2 -m pipeline_papers.egnn_esp.studies.ranks FOLDER
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline_atoms.domains.construction import build_domain
from pipeline_atoms.structure import Structure
from pipeline_core.distributed.ranks import Ranks, connect_ranks
from pipeline_core.distributed.transports import choose_transport
from pipeline_egnn_esp.data.basis import Basis
from pipeline_egnn_esp.inference.forward import predict_blocks
from pipeline_egnn_esp.inference.memory import count_edge_bytes
from pipeline_egnn_esp.inference.slots import BlockSlots, assign_slots
from pipeline_egnn_esp.model.network import Network
from pipeline_egnn_esp.options import ESPOptions
from pipeline_kernels.halo import HaloPlan, Transport, exchange

Ints = NDArray[np.int64]

LINK_ROWS: Final = (1, 4, 16, 64, 256, 1024, 4096)
"""Rows of atoms that two ranks exchange to measure their link."""
_LINK_REPEATS: Final = 15
_WHAT: Final = "what.json"


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

    def save(self, path: Path) -> None:
        """Write the job for the ranks to read."""
        np.savez(path, owners=self.owners, cutoff=self.cutoff, **vars(self.structure))

    @classmethod
    def load(cls, path: Path) -> Job:
        """Read a job."""
        with np.load(path) as file:
            return cls(Structure.of_fields(file), file["owners"], float(file["cutoff"]))


@dataclass(frozen=True)
class Measurement:
    """Description of a measurement on a group of ranks.

    Attributes:
        model: Sizes of the network; cutoffs are taken from the jobs.
        basis: Shells of the elements.
        work_bytes: Memory for a chunk of edges.
        device: "cpu" or "cuda".
        repeats: Measured passes of a job.
        jobs: Structures of the forward passes.
        link: Whether two ranks measure their link.
    """

    model: ESPOptions
    basis: Basis
    work_bytes: int
    device: str
    repeats: int
    jobs: Sequence[Job]
    link: bool = False

    def save(self, folder: Path) -> None:
        """Write the measurement to a folder for the ranks to read."""
        content = {
            "model": self.model.model_dump(mode="json"),
            "basis": self.basis.to_json(),
            "work_bytes": self.work_bytes,
            "device": self.device,
            "repeats": self.repeats,
            "jobs": len(self.jobs),
            "link": self.link,
        }
        (folder / _WHAT).write_text(json.dumps(content), encoding="utf-8")
        for number, job in enumerate(self.jobs):
            job.save(folder / f"job{number}.npz")

    @classmethod
    def load(cls, folder: Path) -> Measurement:
        """Read the measurement from a folder."""
        content = json.loads((folder / _WHAT).read_text(encoding="utf-8"))
        objects = {
            "model": ESPOptions.model_validate_json(json.dumps(content["model"])),
            "basis": Basis.from_json(content["basis"]),
            "jobs": [Job.load(folder / f"job{n}.npz") for n in range(content["jobs"])],
        }
        return cls(**(content | objects))


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


def measure_passes(what: Measurement, n_ranks: int) -> Passes:
    """Start ranks on this machine and return their measurements.

    Raises:
        ValueError: A rank failed.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        what.save(folder)
        _run(folder, n_ranks)
        files = [folder / f"{rank}.json" for rank in range(n_ranks)]
        records = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    return Passes(
        seconds=np.array([one["seconds"] for one in records]).T,
        communication=np.array([one["communication"] for one in records]).T,
        link=records[0]["link"],
    )


def _run(folder: Path, n_ranks: int) -> None:
    launcher = ["torch.distributed.run", "--standalone", f"--nproc-per-node={n_ranks}"]
    command = [sys.executable, "-m", *launcher, "-m", __name__, str(folder)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        errors = [line.strip() for line in done.stderr.splitlines() if "Error" in line]
        raise ValueError(
            f"profile.scaling: {n_ranks} processes on this machine failed "
            f"({errors[0] if errors else 'no message'}); use fewer ranks or a smaller packing"
        )


def main() -> None:
    """Run as one of the ranks: read the measurement from a folder, and write the times there."""
    folder = Path(sys.argv[1])
    what = Measurement.load(folder)
    with connect_ranks(what.device, folder) as ranks:
        torch.set_num_threads(1)
        record = _measure_jobs(what, ranks)
    (folder / f"{ranks.rank}.json").write_text(json.dumps(record), encoding="utf-8")


def _measure_jobs(what: Measurement, ranks: Ranks) -> dict[str, Any]:
    transport = choose_transport(ranks)
    times = [_time_job(what, job, transport, ranks) for job in what.jobs]
    rows = (what.model.lmax + 1) ** 2, what.model.channels
    return {
        "seconds": [seconds for seconds, _ in times],
        "communication": [waiting for _, waiting in times],
        "link": _time_link(transport, ranks, rows) if what.link else [],
    }


def _time_job(
    what: Measurement, job: Job, transport: Transport, ranks: Ranks
) -> tuple[float, float]:
    """Return the median time of a pass of one job, and the part spent in messages."""
    torch.manual_seed(0)  # times do not depend on weights, but ranks must have the same
    bond = what.model.bond_cutoff
    nearer = {"bond_cutoff": bond and min(bond, job.cutoff / 2)}
    network = Network(what.model.model_copy(update=nearer), what.basis, job.cutoff)
    network = network.to(ranks.device).eval()
    domain = build_domain(job.structure, job.cutoff, job.owners, transport)
    slots = assign_slots(domain)
    per_edge = count_edge_bytes(what.model, what.basis, 4, what.device)
    chunk = max(1, what.work_bytes // per_edge)
    timed = [
        _time_pass(network, slots, Stopwatch(transport, ranks.device), chunk, ranks)
        for _ in range(1 + what.repeats)
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


if __name__ == "__main__":
    main()
