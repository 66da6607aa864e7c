"""Predictions for all samples of a split, each exactly once, window by window."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline_core.batch import Batch, count_samples
from pipeline_core.distributed.ranks import Ranks
from pipeline_core.task import Outputs, Quantity, Samples, Task, sum_rows
from pipeline_core.training.loader import load_pieces
from pipeline_core.training.micro_batches import LoadPart, MicroBatch
from pipeline_core.training.out_of_memory import report_out_of_memory

Ints = NDArray[np.int64]

ROWS: Final = 20_000
"""Rows of all kinds in one window, if the experiment sets no capacity."""


@dataclass(frozen=True)
class Window:
    """Consecutive samples of a split, on the CPU.

    Attributes:
        start: Number of the first sample.
        batch: Labels, offsets and, where there are atoms, atomic numbers.
        outputs: Predictions of the labelled fields.
    """

    start: int
    batch: Batch
    outputs: Outputs

    def __len__(self) -> int:
        return count_samples(self.batch)

    @property
    def heads(self) -> Ints:
        """Number of the head of each sample, (n_samples,); the first head by default."""
        if "head" not in self.batch:
            return np.zeros(len(self), np.int64)
        return self.batch["head"].numpy().astype(np.int64)


def cut_windows(samples: Samples, task: Task, capacity: float | None) -> list[range]:
    """Cut a split into consecutive windows that fit the memory; a larger sample stays alone.

    Args:
        samples: The split.
        task: Gives the cost of a sample.
        capacity: Largest cost of a window; None for at most `ROWS` rows.
    """
    if not len(samples):
        return []
    sizes = samples.sizes()
    cost: NDArray[np.float64] = task.cost(sizes) if capacity else sum_rows(sizes)
    limit = capacity or ROWS
    ranges, start, load = [], 0, 0.0
    for number, one in enumerate(cost):
        if number > start and load + one > limit:
            ranges.append(range(start, number))
            start, load = number, 0.0
        load += float(one)
    return [*ranges, range(start, len(cost))]


def predict_samples(
    task: Task,
    samples: Samples,
    ranks: Ranks,
    *,
    capacity: float | None = None,
    load_part: LoadPart | None = None,
) -> Iterator[Window]:
    """Yield on rank 0 the predictions for all samples of a split, in order; nothing on others.

    All ranks iterate together. By samples, each predicts one window, with its graphs, and rank 0
    collects these windows. By domains, each predicts its own atoms of one structure after the
    other, and rank 0 collects labels and predictions of the atoms of one structure: never its graph
    or features, nor anything of edges.

    Args:
        task: Its module holds the trained weights and lies on the device of `ranks`.
        samples: The split.
        ranks: The ranks that share the work.
        capacity: Largest cost of a window of whole samples, see `cut_windows`.
        load_part: Makes this rank's domain of a sample, from `SampleDivider.divide`, if ranks
            divide each structure; None if they take whole samples.

    Raises:
        ValueError: A prediction is not finite or has another shape than its label, or belongs to
            edges of a structure that is divided; or memory does not suffice.
    """
    if load_part is None:
        return _predict_whole(task, samples, capacity, ranks)
    return _predict_parts(task, len(samples), load_part, ranks)


def _predict_whole(
    task: Task, samples: Samples, capacity: float | None, ranks: Ranks
) -> Iterator[Window]:
    cuts = cut_windows(samples, task, capacity)
    own = [np.arange(cut.start, cut.stop) for cut in cuts[ranks.rank :: ranks.size]]
    pieces = load_pieces(own, lambda some: MicroBatch(samples.batch(some.tolist())), ranks.device)
    pairs = zip(own, pieces, strict=True)
    parts = (_predict(task, int(some[0]), piece, ranks.device) for some, piece in pairs)
    for number in range(0, len(cuts), ranks.size):
        cut = cuts[min(number + ranks.rank, len(cuts) - 1)]
        with report_out_of_memory(partial(_describe_window, task, samples, cut, ranks)):
            windows = ranks.gather_on_zero(next(parts, None))
        for window in windows:
            if window is not None:
                yield window


def _predict_parts(task: Task, count: int, load_part: LoadPart, ranks: Ranks) -> Iterator[Window]:
    _require_atoms(task.quantities)
    for number in range(count):
        with report_out_of_memory(partial(_describe_part, number, ranks)):
            piece = load_part(number)
            window = _predict(task, number, piece, ranks.device)
            parts = ranks.gather_on_zero((piece.own_atoms, window))
            whole = _join_parts(task.quantities, parts) if parts else None
        if whole is not None:
            yield whole


def _describe_window(task: Task, samples: Samples, cut: range, ranks: Ranks) -> str:
    """Return a description of this rank's prediction, and how to reduce its memory."""
    place = f"in the prediction of the samples {cut[0]} to {cut[-1]} of the split"
    cost = float(task.cost(samples.sizes())[cut.start : cut.stop].sum())
    cure = (
        f"set partition.capacity below {cost:g}, which they cost, to take fewer at a time"
        if len(cut) > 1
        else "a single sample is too large: set partition.parts to graph and take several ranks, "
        "call with --device cpu, or choose a smaller model"
    )
    return f"{place} on rank {ranks.rank}; {cure}"


def _describe_part(number: int, ranks: Ranks) -> str:
    return (
        f"in the prediction of the sample {number} of the split on rank {ranks.rank}, which has a "
        "part of its atoms; take more ranks, or choose a smaller model"
    )


def _predict(task: Task, start: int, piece: MicroBatch, device: torch.device) -> Window:
    names, batch = [quantity.name for quantity in task.quantities], piece.batch
    with torch.no_grad():
        outputs = piece.to(device).predict(task.module)
    outputs = {name: outputs[name].cpu() for name in names if name in outputs}
    for name, values in outputs.items():
        if not values.isfinite().all():
            raise ValueError(
                f"the model predicts a {name!r} that is not finite between the samples {start} "
                f"and {start + count_samples(batch) - 1} of the split; check the samples there, or "
                "train with a lower learning rate"
            )
    kept = {n for n in batch if n.endswith(("_offsets", "_sample"))} | {
        "atomic_numbers",
        "head",
        *names,
    }
    return Window(start, {n: batch[n] for n in kept if n in batch}, outputs)


def _join_parts(quantities: Sequence[Quantity], parts: Sequence[tuple[Ints, Window]]) -> Window:
    """Return one structure from its domains: rows of atoms in order, and fields of the sample."""
    owned, windows = zip(*parts, strict=True)
    order = torch.from_numpy(np.concatenate(owned)).argsort()
    kinds = {"atomic_numbers": "atom", **{q.name: q.field.kind for q in quantities}}

    def join(name: str, own_rows: Sequence[Mapping[str, Tensor]]) -> Tensor:
        if kinds[name] == "sample":
            return own_rows[0][name]
        pairs = zip(owned, own_rows, strict=True)
        return torch.cat([rows[name][: len(own)] for own, rows in pairs])[order]

    batches, outputs = [w.batch for w in windows], [w.outputs for w in windows]
    batch = {name: join(name, batches) for name in kinds if name in batches[0]}
    batch["atom_offsets"] = torch.tensor([0, len(order)])
    batch["atom_sample"] = torch.zeros_like(order)
    return Window(windows[0].start, batch, {name: join(name, outputs) for name in outputs[0]})


def _require_atoms(quantities: Sequence[Quantity]) -> None:
    for quantity in quantities:
        if quantity.field.kind not in ("atom", "sample"):
            raise ValueError(
                f"partition.parts: graph: {quantity.name!r} has rows of each "
                f"{quantity.field.kind}, which are not collected from ranks that divide a "
                "structure; set partition.parts to samples, or let the plugin implement "
                "evaluate(run)"
            )
