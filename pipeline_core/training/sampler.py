"""Which samples an optimizer step takes, and which of them a rank takes.

A step belongs to the experiment: a window of the shuffled samples, the same for any number of
ranks. The ranks share the window so that their costs are as equal as possible (LPT), and each goes
through its share in micro-batches that fit into its memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pipeline_core.training.seeds import epoch_order
from pipeline_kernels.packing import lpt, split_by_capacity, windows

Numbers = NDArray[np.int64]
Costs = NDArray[np.float64]


@dataclass(frozen=True)
class Share:
    """What one rank does in one step.

    Attributes:
        micro_batches: Numbers of the samples that go through memory together; none for a rank
            without work.
        loads: Cost of the share of every rank, (n_ranks,).
    """

    micro_batches: list[Numbers]
    loads: Costs


@dataclass(frozen=True, kw_only=True)
class Sampler:
    """The steps of each epoch.

    Attributes:
        costs: Cost of each sample, (n_samples,).
        batch_size: Samples of a step, on average; "all" for one step an epoch.
        batch_by: Whether steps have equal numbers of samples or equal costs.
        capacity: Largest cost of a micro-batch.
        seed: Seed of the order.
    """

    costs: Costs
    batch_size: int | Literal["all"]
    batch_by: Literal["count", "cost"] = "count"
    capacity: float = np.inf
    seed: int = 0

    def windows(self, epoch: int) -> list[Numbers]:
        """Return the samples of each step of an epoch."""
        n_samples = len(self.costs)
        order = epoch_order(n_samples, self.seed, epoch)
        size = n_samples if self.batch_size == "all" else min(self.batch_size, n_samples)
        if self.batch_by == "cost":
            cuts = windows(self.costs, order, size)[1:-1]
        else:
            cuts = np.arange(size, n_samples, size)
        return np.split(order, cuts)

    def share(self, window: Numbers, rank: int, n_ranks: int) -> Share:
        """Return what a rank does of a step; all ranks compute the same division."""
        costs = self.costs[window]
        ranks = lpt(costs, n_ranks)
        mine = np.sort(window[ranks == rank])
        bins = split_by_capacity(self.costs[mine], self.capacity)
        batches = [mine[bins == number] for number in range(bins.max(initial=-1) + 1)]
        loads = np.bincount(ranks, weights=costs, minlength=n_ranks).astype(np.float64)
        return Share(batches, loads)
