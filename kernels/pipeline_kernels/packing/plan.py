"""Assignment of samples to ranks and steps, the result of every strategy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipeline_kernels.packing import cpu
from pipeline_kernels.packing.balance import Balance, measure_balance
from pipeline_kernels.packing.cpu import Numbers


@dataclass(frozen=True)
class Plan:
    """The shares of an epoch: every rank has one in every step, though it may be empty.

    Attributes:
        items: Item numbers, share after share, rising within each, `(n_items,)`.
        starts: Offsets of shares in `items`, `(n_steps * n_ranks + 1,)`: the share of rank `r` in
            step `s` is share `s * n_ranks + r`.
        n_ranks: Number of ranks.
        deferred: Items that their step had no room for and a later one took.
    """

    items: Numbers
    starts: Numbers
    n_ranks: int
    deferred: int = 0

    @classmethod
    def from_bins(cls, bins: Numbers, n_bins: int, n_ranks: int, deferred: int = 0) -> Plan:
        """Return the plan in which `n_ranks` consecutive bins are a step.

        Args:
            bins: The bin of each item, `(n_items,)`.
            n_bins: Number of bins; unless it is a multiple of `n_ranks`, empty ones are added.
            n_ranks: Number of ranks.
            deferred: As the attribute.
        """
        n_shares = -(-n_bins // n_ranks) * n_ranks
        items, starts = cpu.group(bins, n_shares)
        return cls(items, starts, n_ranks, deferred)

    def __len__(self) -> int:
        """Number of steps."""
        return (len(self.starts) - 1) // self.n_ranks

    def share(self, step: int, rank: int) -> Numbers:
        """Return the items that a rank takes in a step."""
        number = step * self.n_ranks + rank
        return self.items[self.starts[number] : self.starts[number + 1]]

    def step(self, step: int) -> Plan:
        """Return the plan of one step alone."""
        first = step * self.n_ranks
        starts = self.starts[first : first + self.n_ranks + 1]
        return Plan(self.items[starts[0] : starts[-1]], starts - starts[0], self.n_ranks)

    def reorder(self, steps: Numbers) -> Plan:
        """Return the plan with its steps in another order, a permutation of their numbers."""
        shares = (steps[:, None] * self.n_ranks + np.arange(self.n_ranks)).ravel()
        sizes = np.diff(self.starts)[shares]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        moved = np.repeat(self.starts[shares] - starts[:-1], sizes) + np.arange(len(self.items))
        return Plan(self.items[moved], starts, self.n_ranks, self.deferred)

    def sum_loads(self, costs: ArrayLike) -> NDArray[np.float64]:
        """Return the cost of each share, `(n_steps, n_ranks)`; `costs` is `(n_items,)`."""
        n_shares = len(self.starts) - 1
        shares = np.repeat(np.arange(n_shares), np.diff(self.starts))
        loads = np.bincount(shares, np.asarray(costs)[self.items], n_shares).astype(np.float64)
        return loads.reshape(-1, self.n_ranks)

    def report(self, costs: ArrayLike) -> Balance:
        """Measure the load balance of the ranks for these costs of items."""
        return measure_balance(self.sum_loads(costs), self.deferred)
