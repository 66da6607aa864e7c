"""Steps of the ranks of one machine, measured while all of them compute.

Ranks of a machine share more than its cores: caches, the bandwidth of memory, the parts of a core
that two threads have in common. So each rank is a process that does steps of its own share, and
goes on with them until the last one has been measured. They do not wait for each other: what adding
gradients takes is measured by `network`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Final, Self

import numpy as np
import torch
from numpy.typing import NDArray

from pipeline_core.balance.partitioning import Shares, read_shares
from pipeline_core.balance.sampler import Sampler, Share
from pipeline_core.config.sections import TrainOptions
from pipeline_core.distributed.pieces import Piece
from pipeline_core.distributed.ranks import connect_ranks
from pipeline_core.distributed.threads import limit_numpy_threads
from pipeline_core.profiling.measure import StepTimer
from pipeline_core.profiling.memory import find_used_bytes
from pipeline_core.run import Run
from pipeline_core.seeds import use_deterministic
from pipeline_core.task import DrawnSamples, Samples, Task, build_task
from pipeline_core.training.allocator import keep_freed_memory
from pipeline_core.training.division import make_sampler
from pipeline_core.training.start import initialize_weights, start_metadata
from pipeline_kernels.packing import Plan

_STEPS: Final = 8
"""Measured steps of each rank, after two that do not count."""

Sizes = Mapping[str, NDArray[np.int64]]
LoadRun = Callable[[], Run]


@dataclass(frozen=True)
class Wish:
    """What a process is to measure.

    Attributes:
        ranks: Ranks of the training.
        threads: Of each rank.
    """

    ranks: int
    threads: int


@dataclass(frozen=True)
class Measured:
    """Steps of some ranks that compute at the same time.

    Attributes:
        totals: Rows of each kind in the share of each step, kind -> (n_steps,).
        seconds: Of each step, (n_steps,).
        memory: Bytes of a rank: before the steps, and what a step adds; None if the system does
            not tell.
    """

    totals: Sizes
    seconds: NDArray[np.float64]
    memory: int | None

    @classmethod
    def join(cls, parts: Sequence[Measured]) -> Self:
        """Return the steps of several ranks, and the memory of the largest."""
        known = [part.memory for part in parts if part.memory is not None]
        return cls(
            {kind: np.concatenate([p.totals[kind] for p in parts]) for kind in parts[0].totals},
            np.concatenate([part.seconds for part in parts]),
            max(known, default=None),
        )


class Training:
    """What is trained, as each process sees it.

    Args:
        run: Its data, graph and partition are read; nothing is written.

    Attributes:
        task: With initial weights, on the device.
        sizes: Rows of each kind in each sample of the training, kind -> (n_samples,).
        sampler: The trainer's own.

    Raises:
        ValueError: There is nothing to train with.
    """

    def __init__(self, run: Run, options: TrainOptions, device: torch.device) -> None:
        self.task: Task = build_task(run, start_metadata(options, run.model_info))
        initialize_weights(self.task.module, options, run.model_info, fresh=True)
        self.task.module.to(device)
        stored = self.task.samples("train")
        if not len(stored):
            raise ValueError(f"{run.experiment}: the split 'train' of its dataset is empty")
        shares = read_shares(run.partition, "train", len(stored))
        self._samples: Samples = stored.of_epoch(0) if isinstance(stored, DrawnSamples) else stored
        self.sizes = _choose_sizes(shares)
        self.sampler: Sampler = make_sampler(shares, options, run.seed)

    def load(self, numbers: NDArray[np.int64]) -> Piece:
        """Return a batch of some samples."""
        return Piece(self._samples.batch(numbers.tolist()))


class SideBySide:
    """Processes that are ranks of one machine, to be used as a context.

    Args:
        load: Returns the run; the processes call it, so it can be pickled.
        n_processes: Most ranks that compute at once.
    """

    def __init__(self, load: LoadRun, n_processes: int) -> None:
        self._load, self._n_processes = load, n_processes
        self._ends: list[Connection] = []
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for number in range(self._n_processes):
                self._ends.append(stack.enter_context(_start(self._load, number)))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def measure(self, wish: Wish, n_beside: int) -> Measured:
        """Return what steps of the first ranks take while `n_beside` of them compute.

        Raises:
            ValueError: One of them failed.
        """
        ends = self._ends[:n_beside]
        for end in ends:
            end.send(wish)
        parts = [_receive(end) for end in ends]
        for end in ends:
            end.send(None)  # all are measured, so all may stop
        return Measured.join(parts)


@contextmanager
def _start(load: LoadRun, number: int) -> Iterator[Connection]:
    """Start the process of a rank; yield what speaks with it."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process: BaseProcess = context.Process(target=_serve, args=(load, number, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        yield ours
    finally:
        ours.close()
        process.terminate()
        process.join()


def _receive(end: Connection) -> Measured:
    try:
        answer = end.recv()
    except (EOFError, ConnectionResetError):
        raise ValueError(
            "a process that measured steps ended without a word: probably it had too little "
            "memory; plan fewer ranks on a machine, or a smaller train.batch_size"
        ) from None
    if isinstance(answer, BaseException):
        raise answer
    assert isinstance(answer, Measured)
    return answer


def _serve(load: LoadRun, number: int, end: Connection) -> None:
    """Measure what is wished for until the other end is closed."""
    keep_freed_memory()  # as the training does: steps are faster
    try:
        run = load()
        options = run.get_section("train", TrainOptions)
        with (
            connect_ranks(run.device, run.state) as world,
            use_deterministic(options.deterministic),
            limit_numpy_threads(),
        ):
            rank = _Rank(Training(run, options, world.device), number, options, world.device)
            while True:
                rank.measure(end.recv(), end)
    except EOFError:
        pass
    except Exception as error:  # noqa: BLE001 - whoever asked is to know
        end.send(error if isinstance(error, ValueError) else RuntimeError(repr(error)))


class _Rank:
    """One of the processes: it does the steps that a rank of this number would do."""

    def __init__(
        self, training: Training, number: int, options: TrainOptions, device: torch.device
    ) -> None:
        self._training, self._number, self._device = training, number, device
        self._timer = StepTimer(training.task, options, device)

    def measure(self, wish: Wish, end: Connection) -> None:
        """Tell what steps take, then go on with them until nobody needs the company."""
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", wish.threads)))
        plan = self._training.sampler.plan_epoch(0, wish.ranks)
        memory = self._measure_memory(plan)
        steps: list[tuple[NDArray[np.int64], float]] = []
        for step, seconds in self._timer.measure_steps(plan, self._share, self._training.load):
            if len(steps) < _STEPS:
                steps.append((plan.share(step, self._number), seconds))
                if len(steps) == _STEPS:
                    end.send(self._describe(steps, memory))
            elif end.poll():
                end.recv()
                return

    def _share(self, step: Plan) -> Share:
        return self._training.sampler.share(step, self._number)

    def _measure_memory(self, plan: Plan) -> int | None:
        batches = [self._training.load(b) for b in self._share(plan.step(0)).micro_batches]
        added = self._timer.measure_memory(batches)
        used = find_used_bytes(self._device)
        return None if added is None or used is None else used + added

    def _describe(
        self, steps: Sequence[tuple[NDArray[np.int64], float]], memory: int | None
    ) -> Measured:
        totals = {
            kind: np.array([rows[share].sum() for share, _ in steps])
            for kind, rows in self._training.sizes.items()
        }
        return Measured(totals, np.array([seconds for _, seconds in steps]), memory)


def _choose_sizes(shares: Shares) -> dict[str, NDArray[np.int64]]:
    """Return what the time of a share is a function of: its rows, or its samples."""
    sizes = {kind: np.asarray(rows) for kind, rows in shares.sizes.items()}
    return sizes or {"sample": np.ones(len(shares.costs), np.int64)}
