"""Time and memory of training steps of batches of growing size.

A batch consists of copies of one real sample, so that its size is exact. A step is the trainer's:
the batch goes to the device, forward, loss, backward, optimizer.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Final, Literal

import numpy as np
import torch

from pipeline_core.config.profile import ProfileOptions
from pipeline_core.config.sections import TrainOptions
from pipeline_core.distributed.ranks import Ranks
from pipeline_core.distributed.world import World
from pipeline_core.profiling.calls import Measurement, measure
from pipeline_core.profiling.memory import find_free_bytes, measure_peak
from pipeline_core.profiling.steps import Record, SizeProbe, fit_memory
from pipeline_core.task import Samples, Sizes, Task
from pipeline_core.training.balance.sampler import Share
from pipeline_core.training.division import Load
from pipeline_core.training.history import EpochTotals
from pipeline_core.training.learner import Learner
from pipeline_core.training.loader import Step, load_steps, sum_counts
from pipeline_core.training.micro_batches import MicroBatch
from pipeline_kernels.packing import Plan

_USABLE: Final = 0.8
"""Fraction of free memory that steps may fill, since their memory is extrapolated."""

_WARM: Final = 2
"""First steps, which allocate what stays."""

Limit = Literal["memory", "time"]


def find_memory_limit(options: ProfileOptions, device: torch.device) -> float:
    """Return the bytes that a step may use: those of the options, else 4/5 of the free memory."""
    limit = options.memory_limit
    return _USABLE * find_free_bytes(device) if limit is None else limit


def choose_probes(task: Task, sizes: Sizes, n_classes: int) -> list[SizeProbe]:
    """Return the samples at the quantiles of the numbers of atoms, from the smallest on.

    Of samples equally near to a quantile the one of median cost is taken. Where quantiles coincide
    there are fewer samples; a single class is the median.

    Args:
        task: Gives the costs.
        sizes: Sizes of the samples of its training split.
        n_classes: Number of quantiles.
    """
    atoms, costs = sizes["atom"], task.cost(sizes)
    places = np.linspace(0, 1, n_classes) if n_classes > 1 else np.array([0.5])
    chosen: dict[int, int] = {}
    for quantile in np.quantile(atoms, places):
        distances = np.abs(atoms - quantile)
        nearest = np.flatnonzero(distances == distances.min())
        sample = int(nearest[np.argsort(costs[nearest], kind="stable")[len(nearest) // 2]])
        chosen.setdefault(int(atoms[sample]), sample)
    return [
        SizeProbe(s, {k: int(n[s]) for k, n in sizes.items() if k != "sample"}, float(costs[s]))
        for s in chosen.values()
    ]


class StepTimer:
    """Timer of training steps with a copy of a task's module, which itself stays unchanged.

    Args:
        task: Its module is on the device.
        options: Options of the training.
        device: Device of the steps.
        world: Ranks that all-reduce the gradients; this process alone if not given.
    """

    def __init__(
        self, task: Task, options: TrainOptions, device: torch.device, world: World | None = None
    ) -> None:
        self._ranks = Ranks(world or World(), device)
        self._objective = task.objective
        copy = replace(task, module=deepcopy(task.module))
        alone = options.model_copy(update={"profile": False})
        self._learner = Learner(copy, alone, self._ranks, overlap=True)
        self._learner.train()
        self._totals = EpochTotals.zero(len(task.objective.weights), device)

    def measure(self, samples: Samples, numbers: Sequence[int], repeats: int) -> Measurement:
        """Measure steps of a batch, after two that do not count."""
        step = self.make_call([MicroBatch(samples.batch(numbers))])
        return measure(step, self._ranks.device, repeats)

    def measure_steps(
        self, plan: Plan, share: Callable[[Plan], Share], load: Load
    ) -> Iterator[tuple[int, float]]:
        """Compute steps of an epoch as the trainer does, with prefetched batches, without end.

        Args:
            plan: The epoch; after its last step comes its first.
            share: Returns the share of a step.
            load: Collates its micro-batches.

        Yields:
            Number of each step but the first two, and its seconds; the first step of an epoch
            includes the wait for its batch.
        """
        done = 0
        while True:
            begin = time.perf_counter()
            steps = load_steps(plan, share, load, self._objective, self._ranks.device)
            for number, step in enumerate(steps):
                self._learner.step(step, self._totals)
                self._wait()
                end = time.perf_counter()
                done += 1
                if done > _WARM:
                    yield number, end - begin
                    end = time.perf_counter()
                begin = end

    def make_call(self, pieces: list[MicroBatch]) -> Callable[[], None]:
        """Return a function that starts a step of some micro-batches, without waiting for it."""
        if self._ranks.device.type == "cuda":
            pieces = [piece.pin_memory() for piece in pieces]
        step = Step(pieces, sum_counts(self._objective, pieces), 1, np.ones(1))

        def do() -> None:
            self._learner.step(step, self._totals)

        return do

    def measure_memory(self, pieces: list[MicroBatch]) -> int | None:
        """Return the peak memory of a step of some micro-batches, less what stays, bytes."""
        return measure_peak(self.make_call(pieces), self._ranks.device)

    def _wait(self) -> None:
        if self._ranks.device.type == "cuda":
            torch.cuda.synchronize(self._ranks.device)


def measure_classes(
    timer: StepTimer,
    samples: Samples,
    probes: Sequence[SizeProbe],
    options: ProfileOptions,
    limit: float | None,
) -> tuple[list[Record], list[Limit | None]]:
    """Measure batches of each probe, growing until memory or time run out.

    A batch is tried only if it fits by extrapolation from smaller ones.

    Args:
        timer: Measures the steps.
        samples: Samples of the probes.
        probes: By rising size.
        options: Numbers of copies, repeats and limits.
        limit: Bytes that a step may use; None for no limit.

    Returns:
        The measured steps, see `steps`; for each probe the reason why larger batches were not
        tried, None if all were.
    """
    records: list[Record] = []
    limits: list[Limit | None] = []
    for number, probe in enumerate(probes):
        reason: Limit | None = None
        seconds = 0.0
        for copies in sorted(set(options.samples)):
            bound = fit_memory(number, probe, records)
            needed = 0.0 if bound is None else float(bound.predict({"sample": copies}))
            if limit is not None and needed > limit:
                reason = "memory"
                break
            if seconds > options.seconds_limit:
                reason = "time"
                break
            try:
                step = timer.measure(samples, [probe.sample] * copies, options.repeats)
            except torch.OutOfMemoryError:  # others use the GPU too
                reason = "memory"
                break
            records.append(probe.record(number, copies, step))
            seconds = step.median
        limits.append(reason)
    return records, limits
