"""Batches made ahead of time, in a thread of their own.

A thread and no processes: reading and concatenating arrays leaves Python's lock free most of the
time, batches need no copy between processes, and nothing is forked under MPI. Only one thread makes
batches, in order, so that results do not depend on its speed; `Samples.batch` must depend on the
numbers of its samples alone and draw nothing from global generators.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

import torch
from torch import Tensor

from pipeline_core.balance.sampler import Costs, Numbers, Sampler
from pipeline_core.batch import Batch
from pipeline_core.distributed.ranks import Ranks
from pipeline_core.task import Objective, Samples
from pipeline_kernels.packing import Plan

Item = TypeVar("Item")
Result = TypeVar("Result")
_AHEAD: Final = 2


@dataclass(frozen=True)
class Step:
    """One rank's part of an optimizer step.

    Attributes:
        batches: Its micro-batches, on the CPU, pinned if it computes on a GPU.
        counts: Count of each term of the loss over these batches, (n_terms,).
        n_samples: Samples of the step, over all ranks.
        loads: Cost of the share of every rank, (n_ranks,).
    """

    batches: list[Batch]
    counts: Tensor
    n_samples: int
    loads: Costs


def epoch_steps(
    samples: Samples,
    sampler: Sampler,
    objective: Objective,
    ranks: Ranks,
    plan: Plan,
    first: int = 0,
) -> Iterator[Step]:
    """Yield a rank's part of each step of a plan, from the step `first` on."""

    def make(number: int) -> Step:
        step = plan.step(number)
        share = sampler.share(step, ranks.rank)
        batches = [loaded(samples, numbers, ranks.device) for numbers in share.micro_batches]
        return Step(batches, total_counts(objective, batches), len(step.items), share.loads)

    return ahead(make, range(first, len(plan)))


def epoch_batches(samples: Samples, bins: list[Numbers], device: torch.device) -> Iterator[Batch]:
    """Yield one batch for each set of sample numbers, for an evaluation."""
    return ahead(partial(loaded, samples, device=device), bins)


def loaded(samples: Samples, numbers: Numbers, device: torch.device) -> Batch:
    """Return samples as a batch on the CPU, pinned if it is to go to a GPU."""
    batch = samples.batch(numbers.tolist())
    if device.type == "cuda":
        return {name: tensor.pin_memory() for name, tensor in batch.items()}
    return batch


def total_counts(objective: Objective, batches: list[Batch]) -> Tensor:
    """Return the count of each term over some batches, (n_terms,), in float64."""
    names = tuple(objective.weights)
    total = torch.zeros(len(names), dtype=torch.float64)
    for batch in batches:
        counts = objective.counts(batch)
        total += torch.stack([counts[name].double() for name in names])
    return total


def ahead(make: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yield `make(item)` for each item, in order, made in a thread while the caller is busy."""
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
