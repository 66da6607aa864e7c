"""Cache of quantities that a model derives from the graph of a batch."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from pipeline_core.batch import Batch

Plan = TypeVar("Plan")


class Planner(Generic[Plan]):
    """Maker of the plan of a batch; the last plan is reused while the graph is the same.

    The graph is the same if its tensors are the same objects and were not written to: in molecular
    dynamics most steps have the graph of the step before, and the calculator passes its tensors.

    Args:
        make: Function that makes the plan from a batch and the further arguments of `plan`.
        fields: Fields of the batch that it reads; all must be present.
    """

    def __init__(self, make: Callable[..., Plan], fields: Sequence[str]) -> None:
        self._make, self._fields = make, tuple(fields)
        self._last: tuple[list[tuple[Tensor, int]], Plan] | None = None

    def plan(self, batch: Batch, *others: Any) -> Plan:
        """Return the plan of a batch; `others` must depend only on the tensors of the batch."""
        if torch.compiler.is_compiling():
            return self._make(batch, *others)
        read = [_read_version(batch[name]) for name in self._fields]
        if self._last is None or not _are_same(self._last[0], read):
            self._last = None  # frees its memory before the next one is made
            self._last = read, self._make(batch, *others)
        return self._last[1]


def _read_version(tensor: Tensor) -> tuple[Tensor, int]:
    return tensor, 0 if tensor.is_inference() else tensor._version


def _are_same(kept: Sequence[tuple[Tensor, int]], read: Sequence[tuple[Tensor, int]]) -> bool:
    return all(
        one is other and n_writes == n
        for (one, n_writes), (other, n) in zip(kept, read, strict=True)
    )
