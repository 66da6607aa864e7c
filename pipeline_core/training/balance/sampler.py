"""Sampler: the samples of each optimizer step, and the share of each rank.

By default a step belongs to the experiment: a window of the shuffled samples, the same for any
number of ranks. The ranks share the window so that their costs are as equal as possible, and each
goes through its share in micro-batches that fit into its memory (gradient accumulation). Other
strategies exist for comparison, and some of them form steps that depend on the number of ranks.

Costs are given by the plugin and stand for both time and memory. Once the time of samples has been
measured, `times` replaces the costs where ranks share a step, but not where steps are formed or
memory is limited: a training then has the same steps with other shares.
"""

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from pipeline_core.config.sections import Strategy
from pipeline_core.system.seeds import draw_order
from pipeline_kernels import packing
from pipeline_kernels.packing import Plan, split_by_capacity

Numbers = NDArray[np.int64]
Costs = NDArray[np.float64]

_BY_RANKS: Final = ("capped", "next_fit", "mace_bins")
"""Strategies whose steps depend on the number of ranks."""


@dataclass(frozen=True)
class Share:
    """The work of one rank in one step.

    Attributes:
        micro_batches: Numbers of the samples in each micro-batch; empty for a rank without work.
        loads: Cost of the share of every rank, (n_ranks,), or its time if times are shared.
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
        capacity: Largest cost of a micro-batch, and with "capped" of a share.
        seed: Seed of the order.
        strategy: How an epoch is shared, as `PartitionOptions.strategy`.
        times: Quantity that balanced and capped shares make equal, (n_samples,); None for `costs`.
    """

    costs: Costs
    batch_size: int | Literal["all"]
    batch_by: Literal["count", "cost"] = "count"
    capacity: float = np.inf
    seed: int = 0
    strategy: Strategy = "balanced"
    times: Costs | None = None

    def plan_epoch(self, epoch: int, n_ranks: int) -> Plan:
        """Return the samples of each rank in each step of an epoch, the same on all ranks.

        Raises:
            ValueError: The strategy cannot form steps of that size.
        """
        order = draw_order(len(self.costs), self.seed, epoch)
        if self.strategy == "next_fit":
            return packing.pack_next_fit(self.costs, order, n_ranks, self._bin(n_ranks))
        if self.strategy == "mace_bins":
            plan = packing.pack_mace_bins(self.costs, order, n_ranks, self._bin(n_ranks))
            # Otherwise each epoch would go from large samples to small ones.
            return plan.reorder(draw_order(len(plan), self.seed, epoch))
        offsets = self._find_offsets(order)
        if self.strategy == "random":
            return packing.pack_random(order, offsets, n_ranks)
        if self.strategy == "pairing":
            return packing.pack_pairs(self.costs, order, offsets, n_ranks)
        limit = self.capacity if self.strategy == "capped" else np.inf
        return packing.pack_balanced(self._shared, order, offsets, n_ranks, limit, self.costs)

    def share(self, step: Plan, rank: int) -> Share:
        """Return the work of a rank in a step; `step` is the plan of only that step."""
        mine = step.share(0, rank)
        bins = split_by_capacity(self.costs[mine], self.capacity)
        batches = [mine[bins == number] for number in range(bins.max(initial=-1) + 1)]
        return Share(batches, step.sum_loads(self._shared)[0])

    def describe_sharing(self, n_ranks: int) -> dict[str, str]:
        """Return the facts that determine the steps, besides the options of the training.

        A checkpoint within an epoch can be resumed only if the steps stay the same.
        """
        if self.strategy not in _BY_RANKS:
            return {}
        capacity = f", capacity {self.capacity}" if self.strategy == "capped" else ""
        return {"partition.strategy": f"{self.strategy} for {n_ranks} ranks{capacity}"}

    @property
    def _shared(self) -> Costs:
        return self.costs if self.times is None else self.times

    def _find_size(self) -> int:
        n_samples = len(self.costs)
        return n_samples if self.batch_size == "all" else min(self.batch_size, n_samples)

    def _bin(self, n_ranks: int) -> float:
        """Return the capacity of a bin such that `n_ranks` bins hold a step of the right size."""
        if self.batch_size == "all":
            raise ValueError(
                f"partition.strategy: {self.strategy!r} fills bins and cannot take all samples in "
                "one step; set train.batch_size to a number, or choose 'balanced'"
            )
        return float(self.costs.mean() * self._find_size() / n_ranks) or 1.0

    def _find_offsets(self, order: Numbers) -> Numbers:
        if self.batch_by == "cost":
            return packing.cut_windows(self.costs, order, self._find_size())
        n_samples = len(self.costs)
        return np.append(np.arange(0, n_samples, self._find_size()), n_samples)
