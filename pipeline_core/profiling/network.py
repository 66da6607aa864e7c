"""Time of the all-reduce of gradients: measured between a few ranks, a formula for more.

Run as a program, with the environment variables of torchrun, this module is one of the measured
ranks:

    python -m pipeline_core.profiling.network {cpu,cuda} FILE
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import nnls
from torch import distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined] # exported at run time

from pipeline_core.artifacts.store import write_atomic
from pipeline_core.config.profile import Network, Projection
from pipeline_core.distributed.rendezvous import init_process_group
from pipeline_core.distributed.world import find_world

SIZES: Final = tuple(1024 * 4**n for n in range(9))
"""Bytes of the messages: 1 KiB to 64 MiB."""

ASSUMED: Final = Network(alpha=20e-6, bandwidth=10e9)
"""Default between nodes: 100 Gbit/s, of which four fifths are used."""

_LOOPBACK: Final = "127.0.0.1"
_REPEATS: Final = 7
_PATIENCE: Final = 600.0
"""Seconds that a measurement may take: most go into the start of its processes."""


def compute_ring_seconds(network: Network, n_bytes: float, n_ranks: int) -> float:
    """Return the time of a ring all-reduce of `n_bytes`, s; see `Network`."""
    messages = 2 * (n_ranks - 1)
    return messages * (network.alpha + n_bytes / (n_ranks * network.bandwidth))


def fit_latency(network: Network, sizes: Sequence[float], seconds: float, n_ranks: int) -> Network:
    """Fit the latency to the total time of ring all-reduces of several `sizes`.

    The bandwidth stays, and alpha does not fall: between steps messages wait for processes that
    sleep or lack a core, unlike in `measure_network`.
    """
    rest = seconds / (2 * (n_ranks - 1)) - sum(sizes) / (n_ranks * network.bandwidth)
    return network.model_copy(update={"alpha": max(network.alpha, rest / len(sizes))})


def fit_ring(
    sizes: Sequence[float], seconds: Sequence[float] | NDArray[np.float64], n_ranks: int
) -> Network:
    """Fit latency and bandwidth of the ring formula by least squares of relative errors.

    Args:
        sizes: Bytes of the messages, of two sizes at least.
        seconds: Time of each, positive.
        n_ranks: Number of ranks of the ring.
    """
    times = np.asarray(seconds, dtype=np.float64)
    rows = 2 * (n_ranks - 1) * np.stack([np.ones(len(times)), np.divide(sizes, n_ranks)], axis=1)
    rows /= times[:, None]
    lengths = np.linalg.norm(rows, axis=0)  # the two columns differ by many orders of magnitude
    alpha, inverse = nnls(rows / lengths, np.ones(len(times)))[0] / lengths
    # Neither may be exactly zero: alpha is at least 1 ps, the bandwidth at most 1 EB/s.
    return Network(alpha=max(float(alpha), 1e-12), bandwidth=1 / max(float(inverse), 1e-18))


def measure_network(
    device: torch.device, n_ranks: int = 2, patience: float = _PATIENCE
) -> dict[str, Any]:
    """Measure the all-reduce of tensors between processes of this machine.

    By gloo on the CPU; by NCCL if the device is a GPU and the machine has as many of them.

    Args:
        device: Device of the gradients.
        n_ranks: Number of processes.
        patience: Seconds after which to give up.

    Returns:
        alpha (s), bandwidth (bytes/s), source, backend, sizes (bytes) and their seconds.

    Raises:
        ValueError: The processes failed or did not end in time.
    """
    kind = "cuda" if device.type == "cuda" and torch.cuda.device_count() >= n_ranks else "cpu"
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "seconds.json"
        _run_ranks(kind, result, n_ranks, patience)
        seconds = json.loads(result.read_text(encoding="utf-8"))
    network = fit_ring(SIZES, seconds, n_ranks)
    return {
        "alpha": network.alpha,
        "bandwidth": network.bandwidth,
        "source": f"measured between {n_ranks} processes here",
        "backend": "nccl" if kind == "cuda" else "gloo",
        "sizes": list(SIZES),
        "seconds": seconds,
    }


def describe_network(network: Network) -> dict[str, Any]:
    """Return the same record for a network given in an experiment."""
    return {**network.model_dump(), "source": "given", "sizes": [], "seconds": []}


def choose_network(projection: Projection | None) -> tuple[Network, dict[str, Any]]:
    """Return the network between machines from an experiment, or the assumed one.

    Args:
        projection: The section of the experiment, if it has one.

    Returns:
        The network, and its record as from `measure_network`.
    """
    given = None if projection is None else projection.network
    if given is None:
        return ASSUMED, {**describe_network(ASSUMED), "source": "assumed"}
    return given, describe_network(given)


def host_ranks(n_ranks: int) -> tuple[TCPStore, dict[str, str]]:
    """Return a store for the rendezvous of ranks, and their environment, as torchrun has them.

    The caller keeps the store until the ranks have ended, so that its port is not lost.
    """
    store = TCPStore(_LOOPBACK, 0, is_master=True, wait_for_workers=False)
    return store, {
        "WORLD_SIZE": str(n_ranks),
        "MASTER_ADDR": _LOOPBACK,
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }


def _run_ranks(kind: str, result: Path, n_ranks: int, patience: float) -> None:
    store, variables = host_ranks(n_ranks)
    common = variables | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", __name__, kind, str(result)]
    logs = [result.with_name(f"rank{rank}.log") for rank in range(n_ranks)]
    ranks: list[subprocess.Popen[bytes]] = []
    try:
        for rank, log in enumerate(logs):
            environment = os.environ | common | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            with log.open("wb") as file:
                ranks.append(subprocess.Popen(command, env=environment, stdout=file, stderr=file))
        problem = _watch(ranks, patience)
    finally:
        for process in ranks:
            process.kill()
            process.wait()
        del store
    if problem:
        lines = [line for log in logs for line in log.read_text(errors="replace").splitlines()[-3:]]
        raise ValueError(
            f"profile.projection.network: {n_ranks} processes that add gradients {problem} "
            f"({'; '.join(lines) or 'no output'}); give alpha and bandwidth instead"
        )


def _watch(ranks: Sequence[subprocess.Popen[bytes]], patience: float) -> str | None:
    """Wait for processes, until one fails; return the failure, or None."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        codes = [process.poll() for process in ranks]
        if any(codes):
            return "failed"
        if codes == [0] * len(codes):
            return None
        time.sleep(0.02)
    return f"did not end within {patience:g} s"


def _measure_rank(kind: str) -> list[float]:
    world = find_world()
    device = torch.device(kind, world.rank) if kind == "cuda" else torch.device(kind)
    if kind == "cuda":
        torch.cuda.set_device(device)
    init_process_group(world, Path())
    try:
        return [_measure_median(torch.zeros(size // 4, device=device)) for size in SIZES]
    finally:
        dist.destroy_process_group()


def _measure_median(tensor: torch.Tensor) -> float:
    times = []
    for _ in range(1 + _REPEATS):  # each sum waits for all ranks: the first one synchronizes them
        begin = time.perf_counter()
        dist.all_reduce(tensor)
        if tensor.is_cuda:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return float(np.median(times[1:]))


def main() -> None:
    """Run one of the ranks; the first one writes the times of all sizes."""
    kind, file = sys.argv[1:]
    seconds = _measure_rank(kind)
    if find_world().rank == 0:
        with write_atomic(Path(file)) as temporary:
            temporary.write_text(json.dumps(seconds), encoding="utf-8")


if __name__ == "__main__":
    main()
