"""Predictions for all samples of a split, each exactly once, window by window."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from pipeline_core.batch import Batch, n_samples, to_device
from pipeline_core.distributed.pieces import Piece
from pipeline_core.distributed.ranks import Ranks
from pipeline_core.task import Outputs, Samples, Task
from pipeline_core.training.loader import load_pieces

ROWS: Final = 20_000
"""Rows of all kinds in one window, where the experiment names no capacity."""


@dataclass(frozen=True)
class Window:
    """Consecutive samples of a split, on the CPU.

    Attributes:
        start: Number of the first sample.
        batch: Labels, offsets and, where there are atoms, atomic numbers.
        outputs: Predictions of what is labelled.
    """

    start: int
    batch: Batch
    outputs: Outputs

    def __len__(self) -> int:
        return n_samples(self.batch)


def windows(samples: Samples, task: Task, capacity: float | None) -> list[range]:
    """Cut a split into consecutive windows that fit the memory; a sample that does not is alone.

    Args:
        samples: The split.
        task: Gives the cost of a sample.
        capacity: Largest cost of a window; None for at most `ROWS` rows.
    """
    if not len(samples):
        return []
    sizes = samples.sizes()
    cost: NDArray[np.float64] = (
        task.cost(sizes) if capacity else np.sum(list(sizes.values()), axis=0)
    )
    limit = capacity or ROWS
    ranges, start, load = [], 0, 0.0
    for number, one in enumerate(cost):
        if number > start and load + one > limit:
            ranges.append(range(start, number))
            start, load = number, 0.0
        load += float(one)
    return [*ranges, range(start, len(cost))]


def predictions(
    task: Task, samples: Samples, capacity: float | None, ranks: Ranks
) -> Iterator[Window]:
    """Yield the predictions for all samples of a split, in order, on every rank.

    The ranks predict one window each, then exchange them: no more than that is in memory at once.

    Args:
        task: Its module holds the trained weights and lies on the device of `ranks`.
        samples: The split.
        capacity: See `windows`.
        ranks: Who shares the work.

    Raises:
        ValueError: A prediction is not finite or has another shape than its label.
    """
    cuts = windows(samples, task, capacity)
    own = [np.arange(cut.start, cut.stop) for cut in cuts[ranks.rank :: ranks.size]]
    pieces = load_pieces(own, lambda some: Piece(samples.batch(some.tolist())), ranks.device)
    pairs = zip(own, pieces, strict=True)
    parts = (_predict(task, int(some[0]), piece.batch, ranks.device) for some, piece in pairs)
    for _ in range(0, len(cuts), ranks.size):
        for window in ranks.gather(next(parts, None)):
            if window is not None:
                yield window


def _predict(task: Task, start: int, batch: Batch, device: torch.device) -> Window:
    names = [quantity.name for quantity in task.quantities]
    with torch.no_grad():
        outputs = task.module(to_device(batch, device))
    outputs = {name: outputs[name].cpu() for name in names if name in outputs}
    for name, values in outputs.items():
        if not values.isfinite().all():
            raise ValueError(
                f"the model predicts a {name!r} that is not finite between the samples {start} "
                f"and {start + n_samples(batch) - 1} of the split; check the samples there, or "
                "train with a lower learning rate"
            )
    kept = {n for n in batch if n.endswith(("_offsets", "_sample"))} | {"atomic_numbers", *names}
    return Window(start, {n: batch[n] for n in kept if n in batch}, outputs)
