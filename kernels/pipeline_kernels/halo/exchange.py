"""Halo exchange: ghost rows from the ranks that own them, and gradients back to the owners.

An exchange is two nodes of autograd's graph, `_PostSends` and `_WaitReceives`, joined by a tensor
without elements. Computation between them overlaps with communication, in both directions: the
backward pass meets `_WaitReceives` first, posts the gradients of the halo, continues with what was
computed in between (autograd runs nodes in reverse order), and waits in `_PostSends`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pipeline_kernels.checks import FLOATING
from pipeline_kernels.halo.plan import HaloPlan
from pipeline_kernels.halo.transports import Messages, Transport, Wait
from pipeline_kernels.message import segment_sum


def exchange(x: Tensor, plan: HaloPlan, transport: Transport) -> Tensor:
    """Append the rows of the halo to own rows: `A x = [x_own | x_halo]`.

    Differentiable any number of times. All ranks of the transport call it together.

    | symbol   | argument                               |
    |----------|----------------------------------------|
    | `x_own`  | `x`                                    |
    | `x_halo` | the rows of the result from `n_own` on |
    | `A`      | `plan`                                 |

    Args:
        x: Rows of own nodes, floating, `(n_own, *features)`; dtype and features alike on all ranks.
        plan: The part of this rank.
        transport: The transport of the messages.

    Returns:
        Tensor `(n_own + n_halo, *features)` in the unit of `x`.

    Raises:
        ValueError: if rows, plan and transport do not fit together.
    """
    return start(x, plan, transport).wait()


def start(x: Tensor, plan: HaloPlan, transport: Transport) -> HaloRequest:
    """Post the messages of an exchange and return before they arrive.

    Interior edges, whose sender is an own node, need `x` alone, so they can be worked on before the
    wait. Takes the arguments of `exchange` and raises its errors.
    """
    _check(x, plan, transport, plan.n_own)
    message = _Forward(plan, transport)
    return HaloRequest(_PostSends.apply(x, message), message)  # type: ignore[no-untyped-call]  # torch has no types


def collect(y: Tensor, plan: HaloPlan, transport: Transport) -> Tensor:
    """Add the rows of ghosts on other ranks to own rows, the transpose of `exchange`.

        (A^T y)_i = y_i + sum of the rows that other ranks hold for node i

    Differentiable any number of times. All ranks of the transport call it together.

    | symbol | argument |
    |--------|----------|
    | `y`    | `y`      |
    | `A`    | `plan`   |

    Args:
        y: Rows of own nodes and the halo, floating, `(n_own + n_halo, *features)`; dtype and
            features alike on all ranks.
        plan: The part of this rank.
        transport: The transport of the messages.

    Returns:
        Tensor `(n_own, *features)` in the unit of `y`.

    Raises:
        ValueError: if rows, plan and transport do not fit together.
    """
    _check(y, plan, transport, plan.n_own + plan.n_halo)
    message = _Reverse(plan, transport)
    token = _PostSends.apply(y, message)  # type: ignore[no-untyped-call]  # torch has no types
    return HaloRequest(token, message).wait()


@dataclass(frozen=True, eq=False)
class HaloRequest:
    """A pending exchange, as `start` returns it."""

    _token: Tensor
    _message: _Message

    def wait(self) -> Tensor:
        """Return the result of `exchange`; once only.

        Raises:
            ValueError: if called again.
        """
        rows: Tensor = _WaitReceives.apply(self._token, self._message)  # type: ignore[no-untyped-call]  # torch has no types
        return rows


class _Message(ABC):
    """The messages of a plan in one direction, without autograd.

    Attributes:
        back: The messages of the gradients, once they have been posted.
    """

    back: _Message

    def __init__(self, plan: HaloPlan, transport: Transport) -> None:
        self.plan, self.transport = plan, transport
        self._wait: Wait | None = None

    @abstractmethod
    def transpose(self) -> _Message:
        """Return the messages of the opposite direction, as new ones."""

    @abstractmethod
    def post(self, rows: Tensor) -> None:
        """Post the messages."""

    @abstractmethod
    def _make_result(self) -> Tensor:
        """Return the rows, once all messages have been received."""

    def wait(self) -> Tensor:
        """Wait for the messages and return the rows."""
        if self._wait is None:
            raise ValueError("expected one wait for an exchange, got two; keep what the first gave")
        self._wait()
        self._wait = None
        return self._make_result()


class _Forward(_Message):
    """Forward communication, `A`: own rows to own and halo rows."""

    def transpose(self) -> _Message:
        return _Reverse(self.plan, self.transport)

    def post(self, rows: Tensor) -> None:
        plan, n_own = self.plan, self.plan.n_own
        packed = rows.index_select(0, plan.send.index)
        self._rows = rows.new_empty(n_own + plan.n_halo, *rows.shape[1:])
        received = _split_by_rank(self._rows[n_own:], plan.receives)
        self._wait = self.transport.start(_split_by_rank(packed, plan.sends), received)
        self._rows[:n_own] = rows

    def _make_result(self) -> Tensor:
        rows = self._rows
        del self._rows
        return rows


class _Reverse(_Message):
    """Reverse communication, `A^T`: own and halo rows to own rows."""

    def transpose(self) -> _Message:
        return _Forward(self.plan, self.transport)

    def post(self, rows: Tensor) -> None:
        plan = self.plan
        self._rows = rows
        self._received = rows.new_empty(plan.n_sent, *rows.shape[1:])
        returned = _split_by_rank(rows[plan.n_own :].contiguous(), plan.receives)
        self._wait = self.transport.start(returned, _split_by_rank(self._received, plan.sends))

    def _make_result(self) -> Tensor:
        rows = self._rows[: self.plan.n_own] + segment_sum(self._received, self.plan.send)
        del self._rows, self._received
        return rows


class _PostSends(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, message: _Message) -> Tensor:
        ctx.message = message
        message.post(rows.detach())
        return rows.new_empty(0)

    @staticmethod
    def backward(ctx: Any, token: Tensor) -> tuple[Tensor, None]:
        return _WaitReceives.apply(token, ctx.message.back), None  # type: ignore[no-untyped-call]  # torch has no types


class _WaitReceives(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, token: Tensor, message: _Message) -> Tensor:
        ctx.message = message
        return message.wait()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        back = ctx.message.back = ctx.message.transpose()  # a new one for each backward pass
        return _PostSends.apply(gradient, back), None  # type: ignore[no-untyped-call]  # torch has no types


def _split_by_rank(rows: Tensor, counts: Mapping[int, int]) -> Messages:
    """Cut rows into one message for each rank; rows without features make none."""
    parts = rows.split(list(counts.values())) if counts else ()
    return {peer: part for peer, part in zip(counts, parts, strict=True) if part.numel()}


def _check(x: Tensor, plan: HaloPlan, transport: Transport, n_rows: int) -> None:
    if (plan.rank, plan.n_parts) != (transport.rank, transport.size):
        raise ValueError(
            f"plan: expected rank {transport.rank} of {transport.size}, the transport's, got rank "
            f"{plan.rank} of {plan.n_parts}; "
            "make it by HaloPlan.of(owners, edges, transport.rank, transport.size)"
        )
    if x.dtype not in FLOATING:
        raise ValueError(f"x: expected a dtype of {FLOATING}, got {x.dtype}; convert it first")
    if x.ndim == 0 or x.shape[0] != n_rows:
        wanted, cure = "own nodes", "take them by x[plan.own]"
        if n_rows > plan.n_own:
            wanted, cure = "own nodes and the halo", "they are as many as `exchange` returns"
        raise ValueError(f"x: expected {n_rows} rows, {wanted}, got shape {tuple(x.shape)}; {cure}")
    if x.device != plan.own.device:
        raise ValueError(
            f"x: expected device {plan.own.device} of the plan, got {x.device}; "
            "move the plan with .to()"
        )
