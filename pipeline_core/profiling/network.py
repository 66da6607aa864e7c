"""Link between ranks: measured by the all-reduce of gradients between a few, given, or assumed.

A link is recorded as alpha (latency, s), bandwidth (bytes/s), source, and the measured sizes
(bytes) and seconds.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import ArrayLike

from pipeline_core.config.profile import ProfileOptions
from pipeline_core.config.sections import Link
from pipeline_core.distributed.local_ranks import call_on_ranks
from pipeline_core.distributed.ranks import Ranks
from pipeline_core.project.run import Run
from pipeline_core.training.balance.cost_model import fit_nonnegative

SIZES: Final = tuple(1024 * 4**n for n in range(9))
"""Bytes of the messages: 1 KiB to 64 MiB."""

ASSUMED: Final = Link(latency=20e-6, bandwidth=10e9)
"""Default between nodes: 100 Gbit/s, of which four fifths are used."""

_REPEATS: Final = 7


def fit_link(n_bytes: ArrayLike, seconds: ArrayLike) -> Link:
    """Fit t = latency + n / bandwidth by least squares of relative errors.

    Args:
        n_bytes: Bytes of the messages, of two sizes at least.
        seconds: Time of each, positive.
    """
    times = np.asarray(seconds, dtype=np.float64)
    rows = np.stack([np.ones_like(times), np.asarray(n_bytes, dtype=np.float64)], axis=1)
    latency, inverse = fit_nonnegative(rows / times[:, None]).tolist()
    # Neither may be exactly zero: the latency is at least 1 ps, the bandwidth at most 1 EB/s.
    return Link(latency=max(latency, 1e-12), bandwidth=1 / max(inverse, 1e-18))


def fit_ring(sizes: ArrayLike, seconds: ArrayLike, n_ranks: int) -> Link:
    """Fit a link to the times of ring all-reduces over `n_ranks`, as `fit_link`."""
    return fit_link(np.divide(sizes, n_ranks), np.divide(seconds, 2 * (n_ranks - 1)))


def fit_latency(link: Link, sizes: Sequence[float], seconds: float, n_ranks: int) -> Link:
    """Fit the latency to the total time of ring all-reduces of several `sizes`.

    The bandwidth stays, and the latency does not fall: between steps messages wait for processes
    that sleep or lack a core, unlike in `measure_network`.
    """
    rest = seconds / (2 * (n_ranks - 1)) - sum(sizes) / (n_ranks * link.bandwidth)
    return link.model_copy(update={"latency": max(link.latency, rest / len(sizes))})


def measure_network(device: torch.device, n_ranks: int = 2) -> dict[str, Any]:
    """Measure the all-reduce of tensors between processes of this machine; return the record.

    By gloo on the CPU; by NCCL if the device is a GPU and the machine has as many of them.

    Args:
        device: Device of the gradients.
        n_ranks: Number of processes.

    Raises:
        ValueError: A process failed.
    """
    on_gpus = device.type == "cuda" and torch.cuda.device_count() >= n_ranks
    try:
        seconds = call_on_ranks(_measure_sums, n_ranks, "cuda" if on_gpus else "cpu")[0]
    except (ValueError, RuntimeError) as error:
        raise ValueError(
            f"profile.projection.network: {n_ranks} processes that add gradients failed ({error}); "
            "give latency and bandwidth instead"
        ) from error
    return {
        **describe_link(fit_ring(SIZES, seconds, n_ranks)),
        "source": f"measured between {n_ranks} processes here",
        "backend": "nccl" if on_gpus else "gloo",
        "sizes": list(SIZES),
        "seconds": seconds,
    }


def describe_link(link: Link, source: str = "given") -> dict[str, Any]:
    """Return the record of a link that has not been measured."""
    facts = {"alpha": link.latency, "bandwidth": link.bandwidth}
    return {**facts, "source": source, "sizes": [], "seconds": []}


def read_link(record: Mapping[str, Any]) -> Link:
    """Return the link of a record."""
    return Link(latency=record["alpha"], bandwidth=record["bandwidth"])


def choose_network(run: Run) -> dict[str, Any]:
    """Return the record of the link between machines: from the experiment, or the assumed one."""
    projection = run.get_section("profile", ProfileOptions).projection
    if projection is None or projection.network is None:
        return describe_link(ASSUMED, "assumed")
    return describe_link(projection.network)


def _measure_sums(ranks: Ranks) -> list[float]:
    """Return the median time of the all-reduce of each size, s."""
    return [_measure_sum(ranks, torch.zeros(size // 4, device=ranks.device)) for size in SIZES]


def _measure_sum(ranks: Ranks, tensor: torch.Tensor) -> float:
    times = []
    for _ in range(1 + _REPEATS):  # each sum waits for all ranks: the first one synchronizes them
        begin = time.perf_counter()
        ranks.all_reduce_sum(tensor)
        if tensor.is_cuda:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return float(np.median(times[1:]))
