"""Assignment of points to steps, ranks and micro-batches."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_core.system.seeds import draw_order
from pipeline_htfbr.training.tabulated import Table

Numbers = NDArray[np.int64]


class Step(NamedTuple):
    """Optimizer step on one rank.

    Attributes:
        n_points: Number of points of the step over all ranks.
        batches: Micro-batches of this rank, on its device.
    """

    n_points: int
    batches: list[Table]


Steps = Callable[[int], Iterable[Step]]
"""Function from the number of an epoch, counted from 0, to its steps."""


@dataclass(frozen=True)
class StepShare:
    """Share of one rank in a step.

    Attributes:
        n_points: Number of points of the step over all ranks.
        batches: Indices of the points of each micro-batch of the rank; none for a rank without
            work.
    """

    n_points: int
    batches: list[Numbers]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Steps of each epoch; all points cost the same, so ranks take equal numbers of them.

    A step does not depend on the world size: each rank takes a contiguous share of its points, and
    the gradients are summed over ranks.

    Attributes:
        n_points: Number of points of the split.
        batch_size: Points per step; "all" for one step per epoch.
        capacity: Most points of a micro-batch.
        seed: Seed of the shuffling.
        rank: The rank.
        n_ranks: World size.
    """

    n_points: int
    batch_size: int | Literal["all"] = "all"
    capacity: int
    seed: int
    rank: int
    n_ranks: int

    @property
    def is_full(self) -> bool:
        """True if each step takes all points, so that all epochs are the same."""
        return self.batch_size == "all" or self.batch_size >= self.n_points

    @property
    def largest_pass(self) -> int:
        """Points of the largest micro-batch."""
        size = self.n_points if self.is_full else int(self.batch_size)
        return min(self.capacity, -(-size // self.n_ranks))

    def plan_epoch(self, epoch: int) -> list[StepShare]:
        """Return the shares of the rank in the steps of an epoch."""
        if self.is_full:
            return [self._make_part(np.arange(self.n_points))]
        order = draw_order(self.n_points, self.seed, epoch)
        cuts = range(int(self.batch_size), self.n_points, int(self.batch_size))
        return [self._make_part(window) for window in np.split(order, cuts)]

    def measure_balance(self) -> tuple[float, float]:
        """Return the mean and the largest share over ranks, summed over the steps of an epoch."""
        sizes = [part.n_points for part in self.plan_epoch(0)]
        return self.n_points / self.n_ranks, float(sum(-(-n // self.n_ranks) for n in sizes))

    def _make_part(self, window: Numbers) -> StepShare:
        share = np.array_split(window, self.n_ranks)[self.rank]
        batches = np.split(share, range(self.capacity, len(share), self.capacity))
        return StepShare(len(window), [batch for batch in batches if len(batch)])
