"""What a model makes of the graph of a batch before it calculates, made once a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from pipeline_core.batch import Batch

Plan = TypeVar("Plan")


class Planner(Generic[Plan]):
    """Makes a plan of a batch, and gives the last one again while its graph is the same.

    The same means the very tensors, not written to since: in molecular dynamics most steps have the
    graph of the step before, and a calculator passes its tensors again.

    Args:
        make: Makes the plan of a batch, and of what else `plan` is given.
        fields: Fields of the batch that it reads; all have to be there.
    """

    def __init__(self, make: Callable[..., Plan], fields: Sequence[str]) -> None:
        self._make, self._fields = make, tuple(fields)
        self._last: tuple[list[tuple[Tensor, int]], Plan] | None = None

    def plan(self, batch: Batch, *others: Any) -> Plan:
        """Return the plan of a batch; what else it is made of belongs to the batch's tensors."""
        if torch.compiler.is_compiling():
            return self._make(batch, *others)
        read = [_read_version(batch[name]) for name in self._fields]
        if self._last is None or not _are_same(self._last[0], read):
            self._last = None  # before its successor takes memory
            self._last = read, self._make(batch, *others)
        return self._last[1]


def _read_version(tensor: Tensor) -> tuple[Tensor, int]:
    return tensor, 0 if tensor.is_inference() else tensor._version


def _are_same(kept: Sequence[tuple[Tensor, int]], read: Sequence[tuple[Tensor, int]]) -> bool:
    return all(
        one is other and n_writes == n
        for (one, n_writes), (other, n) in zip(kept, read, strict=True)
    )
