"""Steps of the ranks of one machine, measured while all of them compute.

Ranks of a machine share more than its cores: caches, memory bandwidth, execution units of
hyperthreads. So each rank is a process that computes steps of its own share, twice. First without
communication, until the slowest process has been measured: these are computing times. Then jointly,
with the all-reduce of gradients: these times include waiting.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import distributed as dist

from pipeline_core.config.sections import TrainOptions
from pipeline_core.distributed.local_ranks import call_on_ranks
from pipeline_core.distributed.ranks import Ranks
from pipeline_core.distributed.threads import limit_numpy_threads
from pipeline_core.profiling.measure import StepTimer
from pipeline_core.profiling.memory import find_used_bytes
from pipeline_core.project.run import Run
from pipeline_core.system.memory import keep_freed_memory
from pipeline_core.system.seeds import use_deterministic
from pipeline_core.task import DrawnSamples, Samples, Task, build_task
from pipeline_core.training.balance.partitioning import Shares, read_shares
from pipeline_core.training.balance.sampler import Sampler, Share
from pipeline_core.training.division import make_sampler
from pipeline_core.training.micro_batches import MicroBatch
from pipeline_core.training.start import initialize_weights, start_metadata
from pipeline_kernels.packing import Plan

_LEAST_STEPS: Final = 8
_LEAST_SECONDS: Final = 1.0
"""Measured steps of each rank, after two that do not count, and how long they take at least."""

Sizes = Mapping[str, NDArray[np.int64]]
LoadRun = Callable[[], Run]


@dataclass(frozen=True)
class Measured:
    """Steps of some ranks that compute at the same time.

    Attributes:
        totals: Rows of each kind in the share of each step, kind -> (n_steps,).
        seconds: Time of each step, (n_steps,).
        memory: Bytes of a rank: before the steps, plus the growth in a step; None if the system
            does not report them.
        together: Mean time of a joint step of all ranks, s; None for a single rank.
    """

    totals: Sizes
    seconds: NDArray[np.float64]
    memory: int | None
    together: float | None = None

    @classmethod
    def join(cls, parts: Sequence[Measured]) -> Self:
        """Return the steps of several ranks, and the memory of the largest."""
        measured = [part.memory for part in parts if part.memory is not None]
        together = [part.together for part in parts if part.together is not None]
        return cls(
            {kind: np.concatenate([p.totals[kind] for p in parts]) for kind in parts[0].totals},
            np.concatenate([part.seconds for part in parts]),
            max(measured, default=None),
            float(np.mean(together)) if together else None,
        )


class Training:
    """Model and samples of a training in each process.

    Args:
        run: Its data, graph and partition are read; nothing is written.

    Attributes:
        task: With initial weights, on the device.
        stored: Stored samples of the training, or the generator of drawn ones.
        samples: Samples of the training; of its first epoch where they are drawn.
        sizes: Rows of each kind in each sample of the training, kind -> (n_samples,).
        sampler: The trainer's own.

    Raises:
        ValueError: There is nothing to train with.
    """

    def __init__(self, run: Run, options: TrainOptions, device: torch.device) -> None:
        self.task: Task = build_task(run, start_metadata(run))
        initialize_weights(self.task.module, options, run.model_info, fresh=True)
        self.task.module.to(device)
        self.stored = stored = self.task.samples("train")
        if not len(stored):
            raise ValueError(f"{run.experiment}: the split 'train' of its dataset is empty")
        shares = read_shares(run.partition, "train", len(stored))
        self.samples: Samples = stored.of_epoch(0) if isinstance(stored, DrawnSamples) else stored
        self.sizes = _choose_sizes(shares)
        self.sampler: Sampler = make_sampler(shares, options, run.seed)

    def load(self, numbers: NDArray[np.int64]) -> MicroBatch:
        """Collate a batch of some samples."""
        return MicroBatch(self.samples.batch(numbers.tolist()))


def measure_side_by_side(
    load: LoadRun, n_ranks: int, n_processes: int, device: str, threads: int
) -> Measured:
    """Measure steps of the first ranks of a training while all of them compute.

    Args:
        load: Returns the run; must be picklable, since the processes call it.
        n_ranks: Number of ranks of the training.
        n_processes: Number of ranks that compute at once.
        device: Device of the training, as for `connect_ranks`.
        threads: Threads of each rank, unless OMP_NUM_THREADS is set.

    Raises:
        ValueError: One of them failed.
    """
    threads = int(os.environ.get("OMP_NUM_THREADS", threads))
    measure = partial(_measure_rank, load=load, n_ranks=n_ranks)
    return Measured.join(call_on_ranks(measure, n_processes, device, threads))


def _measure_rank(ranks: Ranks, load: LoadRun, n_ranks: int) -> Measured:
    """Measure the steps of the share of a rank in a training on `n_ranks`."""
    keep_freed_memory()  # as the training does: steps are faster
    run = load()
    options = run.get_section("train", TrainOptions)
    with use_deterministic(options.deterministic), limit_numpy_threads():
        training = Training(run, options, ranks.device)
        return _RankSteps(training, options, ranks, n_ranks).measure()


class _RankSteps:
    """Steps of the share of one rank."""

    def __init__(
        self, training: Training, options: TrainOptions, ranks: Ranks, n_ranks: int
    ) -> None:
        self._training, self._options, self._ranks = training, options, ranks
        self._plan = training.sampler.plan_epoch(0, n_ranks)

    def measure(self) -> Measured:
        """Measure steps of this rank alone, and of all ranks jointly."""
        timer = StepTimer(self._training.task, self._options, self._ranks.device)
        memory = self._measure_memory(timer)
        steps = self._measure_alone(timer)
        shares = [self._plan.share(step, self._ranks.rank) for step, _ in steps]
        totals = {
            kind: np.array([rows[share].sum() for share in shares])
            for kind, rows in self._training.sizes.items()
        }
        seconds = np.array([seconds for _, seconds in steps])
        return Measured(totals, seconds, memory, self._measure_jointly(len(steps)))

    def _measure_alone(self, timer: StepTimer) -> list[tuple[int, float]]:
        """Measure steps, then continue with steps until all ranks have been measured."""
        steps: list[tuple[int, float]] = []
        measured: dist.Work | None = None
        for step in self._do_steps(timer):
            if measured is None:
                steps.append(step)
                if _are_enough([seconds for _, seconds in steps]):
                    if self._ranks.size == 1:
                        break
                    measured = dist.all_reduce(torch.zeros(1), async_op=True)
            elif measured.is_completed():
                break
        return steps

    def _measure_jointly(self, n_steps: int) -> float | None:
        """Return the mean time of steps that all ranks compute jointly, s; None for one rank."""
        if self._ranks.size == 1:
            return None
        n_steps = self._ranks.broadcast(n_steps)
        world = self._ranks.world
        timer = StepTimer(self._training.task, self._options, self._ranks.device, world)
        return float(np.mean([seconds for _, seconds in islice(self._do_steps(timer), n_steps)]))

    def _do_steps(self, timer: StepTimer) -> Iterator[tuple[int, float]]:
        return timer.measure_steps(self._plan, self._share, self._training.load)

    def _share(self, step: Plan) -> Share:
        return self._training.sampler.share(step, self._ranks.rank)

    def _measure_memory(self, timer: StepTimer) -> int | None:
        first = self._share(self._plan.step(0))
        added = timer.measure_memory([self._training.load(b) for b in first.micro_batches])
        return None if added is None else find_used_bytes(self._ranks.device) + added


def _are_enough(seconds: Sequence[float]) -> bool:
    return len(seconds) >= _LEAST_STEPS and sum(seconds) >= _LEAST_SECONDS


def _choose_sizes(shares: Shares) -> dict[str, NDArray[np.int64]]:
    """Return the sizes that the time of a share depends on: rows of each kind, or samples."""
    sizes = {kind: np.asarray(rows) for kind, rows in shares.sizes.items()}
    return sizes or {"sample": np.ones(len(shares.costs), np.int64)}
