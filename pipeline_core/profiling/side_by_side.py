"""Steps of the ranks of one machine, measured while all of them compute.

Ranks of a machine share more than its cores: caches, memory bandwidth, execution units of
hyperthreads. So each rank is a process that computes steps of its own share, twice. First without
communication, until the slowest process has been measured: these are computing times. Then jointly,
with the all-reduce of gradients: these times include waiting.
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

from pipeline_core.config.sections import TrainOptions
from pipeline_core.distributed.ranks import connect_ranks
from pipeline_core.distributed.rendezvous import init_process_group
from pipeline_core.distributed.threads import limit_numpy_threads
from pipeline_core.distributed.world import World
from pipeline_core.profiling.measure import StepTimer
from pipeline_core.profiling.memory import find_used_bytes
from pipeline_core.profiling.network import host_ranks
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
class MeasurementRequest:
    """Training to be measured.

    Attributes:
        ranks: Number of ranks of the training.
        threads: Threads of each rank.
    """

    ranks: int
    threads: int


@dataclass(frozen=True)
class _JointRun:
    """Request to compute steps jointly, with the all-reduce of gradients.

    Attributes:
        size: Number of processes.
        steps: Number of measured steps, after two that do not count.
        variables: Environment variables by which the processes connect.
    """

    size: int
    steps: int
    variables: Mapping[str, str]


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
        return cls(
            {kind: np.concatenate([p.totals[kind] for p in parts]) for kind in parts[0].totals},
            np.concatenate([part.seconds for part in parts]),
            max(measured, default=None),
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


def measure_side_by_side(load: LoadRun, request: MeasurementRequest, n_processes: int) -> Measured:
    """Measure steps of the first ranks of a training while all of them compute.

    Args:
        load: Returns the run; must be picklable, since the processes call it.
        request: Training to be measured.
        n_processes: Number of ranks that compute at once.

    Raises:
        ValueError: One of them failed.
    """
    with ExitStack() as stack:
        ends = [stack.enter_context(_start(load, request, n)) for n in range(n_processes)]
        parts: list[Measured] = _receive_all(ends)
        measured = Measured.join(parts)
        if n_processes == 1:
            return measured
        store, variables = host_ranks(n_processes)
        for end in ends:  # all are measured, so none has to keep the machine busy
            end.send(_JointRun(n_processes, len(parts[0].seconds), variables))
        together = float(np.mean(_receive_all(ends)))
        del store
        return replace(measured, together=together)


@contextmanager
def _start(load: LoadRun, request: MeasurementRequest, number: int) -> Iterator[Connection]:
    """Start the process of a rank; yield its connection."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process: BaseProcess = context.Process(
        target=_serve, args=(load, request, number, theirs), daemon=True
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
    """Return the answers of all processes, in order; raise the first failure at once."""
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
            "a process that measured steps ended without a message: probably it had too little "
            "memory; plan fewer ranks on a machine, or a smaller train.batch_size"
        ) from None
    if isinstance(answer, BaseException):
        raise answer
    return answer


def _serve(load: LoadRun, request: MeasurementRequest, number: int, end: Connection) -> None:
    """Run one of the processes, until the other end is closed."""
    keep_freed_memory()  # as the training does: steps are faster
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", request.threads)))
    try:
        run = load()
        options = run.get_section("train", TrainOptions)
        with (
            connect_ranks(run.device, run.state) as world,
            use_deterministic(options.deterministic),
            limit_numpy_threads(),
        ):
            training = Training(run, options, world.device)
            rank = _Rank(training, request, number, options, world.device)
            end.send(rank.run_jointly(rank.measure(end)))
    except EOFError:
        pass
    except Exception as error:  # noqa: BLE001 - the parent raises it
        end.send(error if isinstance(error, ValueError) else RuntimeError(repr(error)))


class _Rank:
    """One of the processes: it computes the steps of a rank of this number."""

    def __init__(
        self,
        training: Training,
        request: MeasurementRequest,
        number: int,
        options: TrainOptions,
        device: torch.device,
    ) -> None:
        self._training, self._number = training, number
        self._options, self._device = options, device
        self._plan = training.sampler.plan_epoch(0, request.ranks)

    def measure(self, end: Connection) -> _JointRun:
        """Send measured steps, then continue with steps until all ranks have been measured."""
        timer = StepTimer(self._training.task, self._options, self._device)
        memory = self._measure_memory(timer)
        steps: list[tuple[int, float]] = []
        is_sent = False
        for step in self._do_steps(timer):
            if not is_sent:
                steps.append(step)
                is_sent = _are_enough([seconds for _, seconds in steps])
                if is_sent:
                    end.send(self._describe(steps, memory))
            elif end.poll():
                break
        joint: _JointRun = end.recv()
        return joint

    def run_jointly(self, joint: _JointRun) -> float:
        """Return the mean time of steps that all processes compute jointly, s."""
        world = World("torchrun", self._number, joint.size)
        os.environ.update({**joint.variables, "RANK": str(self._number)})
        init_process_group(world, Path())
        try:
            timer = StepTimer(self._training.task, self._options, self._device, world)
            steps = islice(self._do_steps(timer), joint.steps)
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
        return None if added is None else find_used_bytes(self._device) + added

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
    """Return the sizes that the time of a share depends on: rows of each kind, or samples."""
    sizes = {kind: np.asarray(rows) for kind, rows in shares.sizes.items()}
    return sizes or {"sample": np.ones(len(shares.costs), np.int64)}
