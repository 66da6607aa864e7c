"""What gated messages are computed from: rows of tables and factors, and parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from torch import Tensor

from pipeline_kernels.message.segments import Segments, segment_sum

N_TABLES = 3


@dataclass(frozen=True)
class Route:
    """What a set of messages reads and where it is added.

    Attributes:
        tables: For each of three tables the row that a message reads; None for a table that has one
            row a message.
        factors: Row of the factors that multiplies each message, or None for no factors.
        targets: Row that each message is added to, or None if messages stay apart.
        n_messages: Number of messages.
    """

    tables: tuple[Segments | None, Segments | None, Segments | None]
    factors: Segments | None
    targets: Segments | None
    n_messages: int

    @property
    def n_targets(self) -> int:
        """Number of rows that messages are added to."""
        return self.n_messages if self.targets is None else self.targets.n_segments

    def encode(self) -> list[Tensor | None]:
        """Return the plans as tensors, as an operator takes them; `decode` is the way back."""
        plans = (*self.tables, self.factors, self.targets)
        lists = [(p.index, p.order, p.offsets) if p else (None, None, None) for p in plans]
        return [tensor for plan in lists for tensor in plan]

    @classmethod
    def decode(cls, lists: Sequence[Tensor | None], n_messages: int) -> Self:
        """Return the route that `encode` has turned into tensors."""
        first, second, third, factors, targets = (
            _plan(*lists[i : i + 3]) for i in range(0, len(lists), 3)
        )
        return cls((first, second, third), factors, targets, n_messages)


def _plan(index: Tensor | None, order: Tensor | None, offsets: Tensor | None) -> Segments | None:
    if index is None or order is None or offsets is None:
        return None
    return Segments(index, order, offsets)


class Inputs(NamedTuple):
    """The tensors that messages are computed from, or what stands for each of them.

    Attributes:
        tables: (n_t, 2 H) each.
        factors: (n_factors, D) or None.
        gain: (2, 1, D).
        shift: (2, 1, D).
        weight: (2, H, D) or None for no hidden layer.
        bias: (2, 1, D) or None.
    """

    tables: Sequence[Tensor]
    factors: Tensor | None
    gain: Tensor
    shift: Tensor
    weight: Tensor | None
    bias: Tensor | None

    @classmethod
    def of(
        cls, tables: Sequence[Tensor], factors: Tensor | None, parameters: Sequence[Tensor]
    ) -> Self:
        """Gather them from what an operator takes."""
        gain, shift, *hidden = parameters
        weight, bias = hidden or (None, None)
        return cls(tables, factors, gain, shift, weight, bias)

    def list_tensors(self) -> list[Tensor]:
        """Return all that are there, in the order of the fields."""
        tensors = *self.tables, self.factors, self.gain, self.shift, self.weight, self.bias
        return [tensor for tensor in tensors if tensor is not None]


def gather_rows(table: Tensor, plan: Segments | None) -> Tensor:
    """Return the row of a table that each message reads."""
    return table if plan is None else table.index_select(0, plan.index)


def sum_rows(values: Tensor, plan: Segments | None) -> Tensor:
    """Sum the values of the messages that read the same row of a table."""
    return values if plan is None else segment_sum(values, plan)
