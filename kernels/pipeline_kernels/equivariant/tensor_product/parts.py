"""The tensor product of many edges, whose weights are never in memory all at once.

The weights of an edge are a function of few features of it, w_e = f(x_e), and with what lies
between the two more than all else that is kept for derivatives. Small parts of the edges are
calculated one after the other, in the same memory; for derivatives the weights of a part are
calculated again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import torch
from torch import Tensor

from pipeline_kernels.equivariant.tensor_product.op import _gradient, _product, tensor_product
from pipeline_kernels.equivariant.tensor_product.plan import ProductPlan
from pipeline_kernels.message.segments import Segments

PART_BYTES: Final = 2**23
"""Bytes of the weights of a part: so few that the C library reuses the same memory, which caches
may still hold. Computing weights twice then costs no more than allocating them for all edges."""

Weigh = Callable[[Tensor], Tensor]
"""Function of the features of edges (n, K) to their weights (n, n_paths channels)."""


@dataclass(frozen=True, eq=False)
class Part:
    """Receivers that follow each other, and their edges.

    Attributes:
        nodes: The receivers.
        rows: Their edges.
        senders: Those of the edges, each once.
        edges: Index, order and offsets of senders, then of receivers, counted within the part.
    """

    nodes: slice
    rows: slice
    senders: Tensor
    edges: list[Tensor]


@dataclass(frozen=True, eq=False)
class Division:
    """A graph and the paths of a product, as a whole and in parts."""

    senders: Segments
    receivers: Segments
    plan: ProductPlan
    parts: list[Part]


def multiply_in_parts(
    h: Tensor,
    Y: Tensor,
    x: Tensor,
    weigh: Weigh,
    senders: Segments,
    receivers: Segments,
    plan: ProductPlan,
) -> Tensor:
    """Multiply and sum as `tensor_product` does, with weights `weigh(x)`.

    For CPUs: parts are too small for a GPU. Differentiable by h, Y and x: once with little memory,
    again with as much as `tensor_product` takes.

    Args:
        h: features, `(n_senders, plan.dim_in, C)`, float32 or float64.
        Y: harmonics of each edge, `(n_edges, plan.dim_sh)`.
        x: features of each edge, `(n_edges, K)`.
        weigh: maps rows `(n, K)` to weights `(n, plan.n_paths * C)`, each row for itself, and is
            not to be differentiated by anything else.
        senders: which row of `h` each edge takes.
        receivers: to which row of the result each edge contributes, ascending.
        plan: representations and paths.

    Returns:
        Sums `(receivers.n_segments, plan.dim_out, C)`.
    """
    assert receivers.order.numel() == 0, "edges are not sorted by receiver"
    n_bytes = plan.n_paths * h.shape[2] * h.element_size()  # of the weights of an edge
    most = max(1, PART_BYTES // max(1, n_bytes))
    graph = Division(senders, receivers, plan, _split(senders, receivers, most))
    result: Tensor = _InParts.apply(h, Y, x, weigh, graph)  # type: ignore[no-untyped-call]
    return result


class _InParts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, Y: Tensor, x: Tensor, weigh: Weigh, graph: Division) -> Tensor:
        ctx.save_for_backward(h, Y, x)
        ctx.weigh, ctx.graph, plan = weigh, graph, graph.plan
        out = h.new_empty(graph.receivers.n_segments, plan.dim_out, h.shape[2])
        for part in graph.parts:
            w = shape_weights(weigh(x[part.rows]), plan)
            sent = h.index_select(0, part.senders)
            out[part.nodes] = _product(sent, Y[part.rows], w, part.edges, plan.encode())
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        wanted = list(ctx.needs_input_grad[:3])
        h, Y, x = ctx.saved_tensors
        differentiate = _differentiate_again if torch.is_grad_enabled() else _differentiate
        grads = differentiate(g, h, Y, x, ctx.weigh, ctx.graph, wanted)
        return (*grads, None, None)


def _differentiate(
    g: Tensor,
    h: Tensor,
    Y: Tensor,
    x: Tensor,
    weigh: Weigh,
    graph: Division,
    wanted: list[bool],
) -> list[Tensor | None]:
    """Return the gradients by h, Y and x, part by part."""
    plan, code = graph.plan, graph.plan.encode()
    pairs = zip((h, Y, x), wanted, strict=True)
    by_h, by_Y, by_x = (t.new_zeros(t.shape) if want else None for t, want in pairs)
    for part in graph.parts:
        with torch.set_grad_enabled(by_x is not None):
            own = x[part.rows].detach().requires_grad_(by_x is not None)
            weights = weigh(own)
        w = shape_weights(weights.detach(), plan)
        operands = [g[part.nodes], h.index_select(0, part.senders), Y[part.rows], w]
        by_sent, by_harmonics, by_w = _gradient(operands, part.edges, code, wanted)
        if by_h is not None:
            by_h.index_add_(0, part.senders, by_sent)
        if by_Y is not None:
            by_Y[part.rows] = by_harmonics
        if by_x is not None:
            (by_x[part.rows],) = torch.autograd.grad(weights, own, by_w.flatten(1))
    return [by_h, by_Y, by_x]


def _differentiate_again(
    g: Tensor,
    h: Tensor,
    Y: Tensor,
    x: Tensor,
    weigh: Weigh,
    graph: Division,
    wanted: list[bool],
) -> list[Tensor | None]:
    """Return the gradients by h, Y and x, of which there are more derivatives."""
    plan = graph.plan
    # Of what is given here alone: h may depend on Y and x, as in all layers but the first.
    h, Y, x = h.view_as(h), Y.view_as(Y), x.view_as(x)
    product = tensor_product(
        h, Y, shape_weights(weigh(x), plan), graph.senders, graph.receivers, plan
    )
    inputs = [t for t, want in zip((h, Y, x), wanted, strict=True) if want]
    grads = iter(torch.autograd.grad(product, inputs, g, create_graph=True))
    return [next(grads) if want else None for want in wanted]


def shape_weights(weights: Tensor, plan: ProductPlan) -> Tensor:
    """Return the weights of edges, (n_edges, n_paths, C)."""
    return weights.view(len(weights), plan.n_paths, weights.shape[1] // plan.n_paths)


def _split(senders: Segments, receivers: Segments, most: int) -> list[Part]:
    """Divide receivers into parts of about as many edges; a part has one receiver at least."""
    offsets, n = receivers.offsets, receivers.n_elements
    n_parts = max(1, -(-n // most))
    shares = torch.arange(1, n_parts, device=offsets.device) * n // n_parts
    cuts = torch.searchsorted(offsets, shares).tolist()
    parts = []
    for first, end in pairwise([0, *cuts, receivers.n_segments]):
        own = offsets[first : end + 1]
        rows = slice(int(own[0]), int(own[-1]))
        sending, place = senders.index[rows].unique(return_inverse=True)
        sent, index = Segments.of(place, len(sending)), receivers.index[rows] - first
        edges = [sent.index, sent.order, sent.offsets, index, receivers.order, own - own[:1]]
        parts.append(Part(slice(first, end), rows, sending, edges))
    return parts
