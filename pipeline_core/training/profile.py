"""Times of training by phase: computing, adding over ranks, waiting for slower ranks."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline_core.distributed.ranks import Ranks
from pipeline_core.training.balance.cost_model import CostModel, fit
from pipeline_kernels.packing import Plan

Phase = Literal["compute", "communication", "idle"]
PHASES: Final[tuple[Phase, ...]] = ("compute", "communication", "idle")
"""Phases of a step on one rank.

compute: waiting for a batch, forward and backward passes, optimizer. communication: all-reduce of
counts and gradients, with the wait there for a rank that still has no batch. idle: waiting, before
gradients are added, for ranks that still compute.
"""


class StepClock:
    """Times the phases of optimizer steps on one rank.

    Unless times are requested it does not run and changes nothing: it does not wait for the device,
    and ranks wait for each other no more often.

    Args:
        ranks: Ranks that train.
        runs: Whether it measures.
        synchronizes: Whether ranks wait for each other before they add gradients. Else waiting
            counts as communication.

    Attributes:
        seconds: Time of each phase since the last `read`.
        share: Time of the forward and backward passes of the last step.
    """

    def __init__(self, ranks: Ranks, *, runs: bool, synchronizes: bool) -> None:
        self._ranks, self.runs, self._synchronizes = ranks, runs, runs and synchronizes
        self.seconds: dict[Phase, float] = dict.fromkeys(PHASES, 0.0)
        self.share, self._last = 0.0, 0.0

    def start(self) -> None:
        """Begin a phase; earlier time is not counted."""
        if self._synchronizes:
            self._ranks.barrier()
        if self.runs:
            self._last = self._read_clock()

    def mark(self, phase: Phase) -> float:
        """End a phase and begin the next one; return its time."""
        if not self.runs:
            return 0.0
        now = self._read_clock()
        seconds, self._last = now - self._last, now
        self.seconds[phase] += seconds
        return seconds

    def finish_share(self) -> None:
        """End the forward and backward passes, and wait for other ranks if `synchronizes`."""
        self.share = self.mark("compute")
        if self._synchronizes:
            self._ranks.barrier()
            self.mark("idle")

    def read(self) -> Tensor:
        """Return the times of `PHASES` and set them to zero, (3,)."""
        read = torch.tensor([self.seconds[phase] for phase in PHASES], dtype=torch.float64)
        self.seconds = dict.fromkeys(PHASES, 0.0)
        return read

    def _read_clock(self) -> float:
        if self._ranks.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()


@dataclass
class EpochTimes:
    """Times of the running epoch.

    Each rank fills in its own times until `all_reduce_sum` adds them.

    Attributes:
        phases: Time of each of `PHASES`, s, (n_ranks, 3).
        shares: Time of the passes of each share, s, (n_steps, n_ranks); zero if not measured.
    """

    phases: Tensor
    shares: Tensor

    @classmethod
    def zero(cls, n_steps: int, n_ranks: int) -> Self:
        """Return the times of a new epoch."""
        shapes = (n_ranks, len(PHASES)), (n_steps, n_ranks)
        return cls(*(torch.zeros(shape, dtype=torch.float64) for shape in shapes))

    def matches(self, plan: Plan) -> bool:
        """Return True if the numbers of steps and ranks are those of a plan."""
        return self.shares.shape == (len(plan), plan.n_ranks)

    def add(self, step: int, rank: int, clock: StepClock, *, warm: bool) -> None:
        """Add a step of a rank; without its share if the process has only begun to compute."""
        if clock.runs:
            self.phases[rank] += clock.read()
            self.shares[step, rank] = clock.share if warm else 0.0

    def all_reduce_sum(self, ranks: Ranks) -> None:
        """Replace the times by those of all ranks, the same on all of them."""
        ranks.all_reduce_sum(self.phases)
        ranks.all_reduce_sum(self.shares)

    def keep_on_rank_zero(self, ranks: Ranks) -> None:
        """Set the times to zero on all ranks but rank 0, which keeps those of the epoch so far."""
        if not ranks.is_rank_zero:
            self.phases.zero_()
            self.shares.zero_()

    def profile(self) -> dict[str, list[float]]:
        """Return the times of each phase, one per rank."""
        return dict(zip(PHASES, self.phases.T.tolist(), strict=True))

    def fit_cost_model(
        self, plan: Plan, sizes: Mapping[str, NDArray[np.int64]]
    ) -> CostModel | None:
        """Fit the time of shares to their sizes.

        A share of several micro-batches counts as one batch. Empty shares are left out: they have
        no passes.

        Args:
            plan: The epoch.
            sizes: Rows of each kind in each sample, kind -> (n_samples,).

        Returns:
            The model; None if too few shares were measured, or their times do not depend on sizes.
        """
        seconds = self.shares.numpy()
        measured = (seconds > 0) & (plan.sum_loads(np.ones(len(plan.items))) > 0)
        if measured.sum() <= len(sizes):
            return None
        totals = {kind: plan.sum_loads(rows)[measured] for kind, rows in sizes.items()}
        model = fit(totals, seconds[measured])
        return model if any(model.per.values()) else None
