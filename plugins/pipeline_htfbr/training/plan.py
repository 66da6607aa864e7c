"""Which points a rank takes in each step."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_core.seeds import draw_order
from pipeline_htfbr.training.tables import Table

Numbers = NDArray[np.int64]


class Step(NamedTuple):
    """A step as a rank does it.

    Attributes:
        n_points: Its points over all ranks.
        batches: Those of this rank, on its device.
    """

    n_points: int
    batches: list[Table]


Steps = Callable[[int], Iterable[Step]]
"""Number of an epoch, from 0, to its steps."""


@dataclass(frozen=True)
class StepShare:
    """What one rank does of a step.

    Attributes:
        n_points: Points of the step, over all ranks.
        batches: Numbers of the points that the rank takes through memory together; none for a rank
            without work.
    """

    n_points: int
    batches: list[Numbers]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The steps of each epoch; all points cost the same, so ranks take equal numbers of them.

    A step belongs to the experiment and not to a number of ranks: each rank takes a contiguous
    share of its points, and what the ranks find is added.

    Attributes:
        n_points: Points of the split.
        batch_size: Points of a step; "all" for one step an epoch.
        capacity: Most points that a rank takes through memory at once.
        seed: Seed of the order.
        rank: Number of the rank.
        n_ranks: Number of ranks.
    """

    n_points: int
    batch_size: int | Literal["all"] = "all"
    capacity: int
    seed: int
    rank: int
    n_ranks: int

    @property
    def is_full(self) -> bool:
        """Whether each step takes all points, so that all epochs are alike."""
        return self.batch_size == "all" or self.batch_size >= self.n_points

    @property
    def largest_pass(self) -> int:
        """Most points that a rank does take through memory at once."""
        size = self.n_points if self.is_full else int(self.batch_size)
        return min(self.capacity, -(-size // self.n_ranks))

    def plan_epoch(self, epoch: int) -> list[StepShare]:
        """Return what the rank does in the steps of an epoch."""
        if self.is_full:
            return [self._make_part(np.arange(self.n_points))]
        order = draw_order(self.n_points, self.seed, epoch)
        cuts = range(int(self.batch_size), self.n_points, int(self.batch_size))
        return [self._make_part(window) for window in np.split(order, cuts)]

    def measure_balance(self) -> tuple[float, float]:
        """Return the mean and the largest share of a rank, summed over the steps of an epoch."""
        sizes = [part.n_points for part in self.plan_epoch(0)]
        return self.n_points / self.n_ranks, float(sum(-(-n // self.n_ranks) for n in sizes))

    def _make_part(self, window: Numbers) -> StepShare:
        share = np.array_split(window, self.n_ranks)[self.rank]
        batches = np.split(share, range(self.capacity, len(share), self.capacity))
        return StepShare(len(window), [batch for batch in batches if len(batch)])
