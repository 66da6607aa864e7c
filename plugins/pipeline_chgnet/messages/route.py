"""What messages are computed from, and what their derivatives are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import torch
from torch import Tensor

from pipeline_kernels.message import Segments, segment_sum

EPSILON: Final = 1e-5
"""ε of the layer normalisation, that of torch."""


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

    @cached_property
    def each(self) -> Tensor:
        """The numbers of the messages, (n_messages,)."""
        plans = [plan for plan in (*self.tables, self.targets) if plan is not None]
        return torch.arange(self.n_messages, device=plans[0].index.device)

    def index(self, plan: Segments | None) -> Tensor:
        """Return the rows that a plan of this route names, (n_messages,)."""
        return self.each if plan is None else plan.index


class Inputs(NamedTuple):
    """The tensors that messages are computed from: D features, hidden width H (D if not hidden).

    Attributes:
        gain: (2, 1, D).
        shift: (2, 1, D).
        weight: (2, H, D) or None for no hidden layer.
        bias: (2, 1, D) or None.
        factors: (n_factors, D) or None.
        tables: (n_t, 2 H) each.
    """

    gain: Tensor
    shift: Tensor
    weight: Tensor | None
    bias: Tensor | None
    factors: Tensor | None
    tables: tuple[Tensor, ...]

    @classmethod
    def of(cls, tensors: Sequence[Tensor | None]) -> Inputs:
        """Gather the inputs from a flat sequence: the fields in order, then the tables."""
        return cls(*tensors[:5], tuple(tensors[5:]))  # type: ignore[arg-type]


class Derivative(NamedTuple):
    """A derivative, by message where it belongs to a message.

    Attributes:
        parameters: By gain, shift, weight and bias.
        factors: By the factor of each message, (n_messages, D), or None.
        h: By h of each message, (n_messages, 2 H).
    """

    parameters: tuple[Tensor | None, ...]
    factors: Tensor | None
    h: Tensor

    def by_input(self, route: Route) -> Iterator[Tensor | None]:
        """Sum messages to rows of factors and tables; the order is that of `Inputs`."""
        yield from self.parameters
        yield None if self.factors is None else summed(self.factors, route.factors)
        for plan in route.tables:
            yield summed(self.h, plan)


def summed(values: Tensor, plan: Segments | None) -> Tensor:
    """Sum the values of each row of a plan; None is a plan with one message a row."""
    return values if plan is None else segment_sum(values, plan)
