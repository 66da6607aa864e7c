"""Steps of the ranks of one machine, measured while all of them compute.

Ranks of a machine share more than its cores: caches, the bandwidth of memory, the parts of a core
that two threads have in common. So each rank is a process that does steps of its own share, twice.
First by itself: it goes on until the last one has been measured, and its times are those of
computing. Then all together, adding their gradients: these times hold the waiting, too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import distributed as dist

from pipeline_core.balance.partitioning import Shares, read_shares
from pipeline_core.balance.sampler import Sampler, Share
from pipeline_core.config.sections import TrainOptions
from pipeline_core.distributed.pieces import Piece
from pipeline_core.distributed.ranks import connect_ranks
from pipeline_core.distributed.rendezvous import init_process_group
from pipeline_core.distributed.threads import limit_numpy_threads
from pipeline_core.distributed.world import World
from pipeline_core.memory import keep_freed_memory
from pipeline_core.profiling.measure import StepTimer
from pipeline_core.profiling.memory import find_used_bytes
from pipeline_core.profiling.network import host_ranks
from pipeline_core.run import Run
from pipeline_core.seeds import use_deterministic
from pipeline_core.task import DrawnSamples, Samples, Task, build_task
from pipeline_core.training.division import make_sampler
from pipeline_core.training.start import initialize_weights, start_metadata
from pipeline_kernels.packing import Plan

_LEAST_STEPS: Final = 8
_LEAST_SECONDS: Final = 1.0
"""Measured steps of each rank, after two that do not count, and how long they take at least."""

Sizes = Mapping[str, NDArray[np.int64]]
LoadRun = Callable[[], Run]


@dataclass(frozen=True)
class Wish:
    """What is to be measured.

    Attributes:
        ranks: Ranks of the training.
        threads: Of each rank.
    """

    ranks: int
    threads: int


@dataclass(frozen=True)
class _Meeting:
    """That processes are to do their steps together.

    Attributes:
        size: Number of processes.
        steps: How many, after two that do not count.
        variables: By which they find each other.
    """

    size: int
    steps: int
    variables: Mapping[str, str]


@dataclass(frozen=True)
class Measured:
    """Steps of some ranks that compute at the same time.

    Attributes:
        totals: Rows of each kind in the share of each step, kind -> (n_steps,).
        seconds: Of each step, (n_steps,).
        memory: Bytes of a rank: before the steps, and what a step adds; None if the system does
            not tell.
        together: Mean seconds of a step that ranks do together; None of a single one.
    """

    totals: Sizes
    seconds: NDArray[np.float64]
    memory: int | None
    together: float | None = None

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
        stored: Samples of the training, or what draws them.
        samples: Those of the training; of its first epoch where they are drawn.
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

    def load(self, numbers: NDArray[np.int64]) -> Piece:
        """Return a batch of some samples."""
        return Piece(self.samples.batch(numbers.tolist()))


def measure_side_by_side(load: LoadRun, wish: Wish, n_processes: int) -> Measured:
    """Measure steps of the first ranks of a training while all of them compute.

    Args:
        load: Returns the run; the processes call it, so it can be pickled.
        wish: What is trained.
        n_processes: Ranks that compute at once.

    Raises:
        ValueError: One of them failed.
    """
    with ExitStack() as stack:
        ends = [stack.enter_context(_start(load, wish, n)) for n in range(n_processes)]
        parts: list[Measured] = _receive_all(ends)
        measured = Measured.join(parts)
        if n_processes == 1:
            return measured
        store, variables = host_ranks(n_processes)
        for end in ends:  # all are measured, so none has to keep the others company
            end.send(_Meeting(n_processes, len(parts[0].seconds), variables))
        together = float(np.mean(_receive_all(ends)))
        del store
        return replace(measured, together=together)


@contextmanager
def _start(load: LoadRun, wish: Wish, number: int) -> Iterator[Connection]:
    """Start the process of a rank; yield what speaks with it."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process: BaseProcess = context.Process(
        target=_serve, args=(load, wish, number, theirs), daemon=True
    )
    process.start()
    theirs.close()
    try:
        yield ours
    finally:
        ours.close()
        process.terminate()
        process.join()


def _receive_all(ends: Sequence[Connection]) -> list[Any]:
    """Return what all processes answer, in order; the first that fails is heard at once."""
    answers: dict[Connection, Any] = {}
    while len(answers) < len(ends):
        for end in wait([one for one in ends if one not in answers]):
            assert isinstance(end, Connection)
            answers[end] = _receive(end)
    return [answers[end] for end in ends]


def _receive(end: Connection) -> Any:
    try:
        answer = end.recv()
    except (EOFError, ConnectionResetError):
        raise ValueError(
            "a process that measured steps ended without a word: probably it had too little "
            "memory; plan fewer ranks on a machine, or a smaller train.batch_size"
        ) from None
    if isinstance(answer, BaseException):
        raise answer
    return answer


def _serve(load: LoadRun, wish: Wish, number: int, end: Connection) -> None:
    """Be one of the processes, until the other end is closed."""
    keep_freed_memory()  # as the training does: steps are faster
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", wish.threads)))
    try:
        run = load()
        options = run.get_section("train", TrainOptions)
        with (
            connect_ranks(run.device, run.state) as world,
            use_deterministic(options.deterministic),
            limit_numpy_threads(),
        ):
            training = Training(run, options, world.device)
            rank = _Rank(training, wish, number, options, world.device)
            end.send(rank.meet(rank.measure(end)))
    except EOFError:
        pass
    except Exception as error:  # noqa: BLE001 - whoever asked is to know
        end.send(error if isinstance(error, ValueError) else RuntimeError(repr(error)))


class _Rank:
    """One of the processes: it does the steps that a rank of this number would do."""

    def __init__(
        self,
        training: Training,
        wish: Wish,
        number: int,
        options: TrainOptions,
        device: torch.device,
    ) -> None:
        self._training, self._number = training, number
        self._options, self._device = options, device
        self._plan = training.sampler.plan_epoch(0, wish.ranks)

    def measure(self, end: Connection) -> _Meeting:
        """Tell what steps take, then go on with them until all have been measured."""
        timer = StepTimer(self._training.task, self._options, self._device)
        memory = self._measure_memory(timer)
        steps: list[tuple[int, float]] = []
        is_told = False
        for step in self._do_steps(timer):
            if not is_told:
                steps.append(step)
                is_told = _are_enough([seconds for _, seconds in steps])
                if is_told:
                    end.send(self._describe(steps, memory))
            elif end.poll():
                break
        meeting: _Meeting = end.recv()
        return meeting

    def meet(self, meeting: _Meeting) -> float:
        """Return the mean seconds of steps that all processes do together."""
        world = World("torchrun", self._number, meeting.size)
        os.environ.update({**meeting.variables, "RANK": str(self._number)})
        init_process_group(world, Path())
        try:
            timer = StepTimer(self._training.task, self._options, self._device, world)
            steps = islice(self._do_steps(timer), meeting.steps)
            return float(np.mean([seconds for _, seconds in steps]))
        finally:
            dist.destroy_process_group()

    def _do_steps(self, timer: StepTimer) -> Iterator[tuple[int, float]]:
        return timer.measure_steps(self._plan, self._share, self._training.load)

    def _share(self, step: Plan) -> Share:
        return self._training.sampler.share(step, self._number)

    def _measure_memory(self, timer: StepTimer) -> int | None:
        first = self._share(self._plan.step(0))
        added = timer.measure_memory([self._training.load(b) for b in first.micro_batches])
        used = find_used_bytes(self._device)
        return None if added is None or used is None else used + added

    def _describe(self, steps: Sequence[tuple[int, float]], memory: int | None) -> Measured:
        shares = [self._plan.share(step, self._number) for step, _ in steps]
        totals = {
            kind: np.array([rows[share].sum() for share in shares])
            for kind, rows in self._training.sizes.items()
        }
        return Measured(totals, np.array([seconds for _, seconds in steps]), memory)


def _are_enough(seconds: Sequence[float]) -> bool:
    return len(seconds) >= _LEAST_STEPS and sum(seconds) >= _LEAST_SECONDS


def _choose_sizes(shares: Shares) -> dict[str, NDArray[np.int64]]:
    """Return what the time of a share is a function of: its rows, or its samples."""
    sizes = {kind: np.asarray(rows) for kind, rows in shares.sizes.items()}
    return sizes or {"sample": np.ones(len(shares.costs), np.int64)}
