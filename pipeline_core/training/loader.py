"""Prefetching of batches in a thread, with copies to a GPU while it computes.

A thread, not processes: reading and concatenating arrays releases Python's lock most of the time,
batches need no copy between processes, and nothing is forked under MPI. Only one thread collates
batches, in order, so that results do not depend on its speed; `Samples.batch` must depend on the
numbers of its samples alone and must not use global random generators.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import torch
from torch import Tensor

from pipeline_core.task import Objective
from pipeline_core.training.balance.sampler import Costs, Numbers, Share
from pipeline_core.training.division import Load
from pipeline_core.training.micro_batches import MicroBatch
from pipeline_kernels.packing import Plan

Item = TypeVar("Item")
Result = TypeVar("Result")
_AHEAD: Final = 2


@dataclass(frozen=True)
class Step:
    """One rank's share of an optimizer step.

    Attributes:
        pieces: Its micro-batches, on the device.
        counts: Count of each term of the loss over these, (n_terms,).
        n_samples: Samples of the step, over all ranks.
        loads: Cost of the share of every rank, (n_ranks,).
    """

    pieces: list[MicroBatch]
    counts: Tensor
    n_samples: int
    loads: Costs


def load_steps(
    plan: Plan,
    share: Callable[[Plan], Share],
    load: Load,
    objective: Objective,
    device: torch.device,
    first: int = 0,
) -> Iterator[Step]:
    """Yield a rank's share of each step of a plan, from the step `first` on.

    Args:
        plan: Plan of an epoch.
        share: Returns the share of this rank in a step.
        load: Collates micro-batches.
        objective: Counts labels.
        device: Device of the micro-batches.
        first: Number of the first step.
    """
    copies = CopyStream(device) if device.type == "cuda" else None

    def make(number: int) -> tuple[Step, torch.cuda.Event | None]:
        step = plan.step(number)
        own = share(step)
        pieces = [load(numbers) for numbers in own.micro_batches]
        made = Step(pieces, sum_counts(objective, pieces), len(step.items), own.loads)
        return (made, None) if copies is None else copies.send(made)

    for step, event in prefetch(make, range(first, len(plan))):
        if copies is not None and event is not None:
            copies.wait_for(step, event)
        yield step


class CopyStream:
    """CUDA stream that copies steps to a GPU while it computes.

    Args:
        device: The GPU.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)

    def send(self, step: Step) -> tuple[Step, torch.cuda.Event]:
        """Begin to copy a step; any thread may do so.

        Returns:
            The step on the GPU, and the event of its arrival.
        """
        pinned = [piece.pin_memory() for piece in step.pieces]
        with torch.cuda.stream(self._stream):
            pieces = [piece.to(self._device) for piece in pinned]
            return replace(step, pieces=pieces), self._stream.record_event()

    def wait_for(self, step: Step, event: torch.cuda.Event) -> None:
        """Make the computation of this thread wait for the arrival of a step."""
        stream = torch.cuda.current_stream(self._device)
        stream.wait_event(event)
        for piece in step.pieces:
            piece.record_stream(stream)


def load_pieces(numbers: list[Numbers], load: Load, device: torch.device) -> Iterator[MicroBatch]:
    """Yield one micro-batch for each set of sample numbers, for an evaluation."""
    return prefetch(lambda some: _pin(load(some), device), numbers)


def _pin(piece: MicroBatch, device: torch.device) -> MicroBatch:
    return piece.pin_memory() if device.type == "cuda" else piece


def sum_counts(objective: Objective, pieces: list[MicroBatch]) -> Tensor:
    """Return the count of each term over some micro-batches, (n_terms,), in float64."""
    names = tuple(objective.weights)
    total = torch.zeros(len(names), dtype=torch.float64)
    for piece in pieces:
        counts = objective.counts(piece.batch)
        total += torch.stack([counts[name].double() for name in names])
    return total


def prefetch(make: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yield `make(item)` for each item, in order, computed in a thread while the caller is busy."""
    pool = ThreadPoolExecutor(1)
    pending: deque[Future[Result]] = deque()
    try:
        for item in items:
            pending.append(pool.submit(make, item))
            if len(pending) > _AHEAD:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
