"""The tensor product whose weights are a linear map of features of the edges, w = x A.

For training with little memory. Weights, their change along a direction, and derivatives by both
are each larger than all else that edges have; they are made for small parts of the edges, one after
the other, in the same memory, whenever they are needed.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pipeline_kernels.eager import list_wanted
from pipeline_kernels.equivariant.tensor_product.op import (
    _gradient,
    _product,
    _tangents,
    tensor_product,
)
from pipeline_kernels.equivariant.tensor_product.parts import Graph, divide_graph, shape_weights
from pipeline_kernels.equivariant.tensor_product.plan import ProductPlan
from pipeline_kernels.message.segments import Segments
from pipeline_kernels.operators import differentiate_reference

Grads = list[Tensor | None]


def multiply_mixed(
    h: Tensor,
    Y: Tensor,
    x: Tensor,
    A: Tensor,
    senders: Segments,
    receivers: Segments,
    plan: ProductPlan,
) -> Tensor:
    """Multiply and sum as `tensor_product` does, with the weights `x A`.

    For CPUs: parts are too small for a GPU. Differentiable any number of times, with little memory
    once by all, and once more by all but Y.

    Args:
        h: features, `(n_senders, plan.dim_in, C)`, float32 or float64.
        Y: harmonics of each edge, `(n_edges, plan.dim_sh)`.
        x: features of each edge, `(n_edges, K)`.
        A: `(K, plan.n_paths * C)`.
        senders: which row of `h` each edge takes.
        receivers: to which row of the result each edge contributes, ascending.
        plan: representations and paths.

    Returns:
        Sums `(receivers.n_segments, plan.dim_out, C)`.
    """
    graph = divide_graph(senders, receivers, plan, A.shape[1] * A.element_size())
    result: Tensor = _Product.apply(h, Y, x, A, graph)  # type: ignore[no-untyped-call]
    return result


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, Y: Tensor, x: Tensor, A: Tensor, graph: Graph) -> Tensor:
        ctx.save_for_backward(h, Y, x, A)
        ctx.graph, plan = graph, graph.plan
        out = h.new_empty(graph.receivers.n_segments, plan.dim_out, h.shape[2])
        for part in graph.parts:
            w = shape_weights(x[part.rows] @ A, plan)
            sent = h.index_select(0, part.senders)
            out[part.nodes] = _product(sent, Y[part.rows], w, part.edges, plan.encode())
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        wanted = list_wanted(ctx)
        grads = _Gradient.apply(g, *ctx.saved_tensors, ctx.graph, wanted)  # type: ignore[no-untyped-call]
        return (*grads, None)


class _Gradient(torch.autograd.Function):
    """The derivatives of `sum g * product` by h, Y, x and A."""

    @staticmethod
    def forward(
        ctx: Any,
        g: Tensor,
        h: Tensor,
        Y: Tensor,
        x: Tensor,
        A: Tensor,
        graph: Graph,
        wanted: Sequence[bool],
    ) -> tuple[Tensor | None, ...]:
        ctx.save_for_backward(g, h, Y, x, A)
        ctx.set_materialize_grads(False)
        ctx.graph = graph
        by_h, by_Y, by_x, by_A = sums = _make_zeros((h, Y, x, A), wanted)
        flags = [by_h is not None, by_Y is not None, True]
        for part in graph.parts:
            own = x[part.rows]
            w = shape_weights(own @ A, graph.plan)
            operands = [g[part.nodes], h.index_select(0, part.senders), Y[part.rows], w]
            grads = _gradient(operands, part.edges, graph.plan.encode(), flags)
            by_w = grads[2].flatten(1)
            if by_h is not None:
                by_h.index_add_(0, part.senders, grads[0])
            if by_Y is not None:
                by_Y[part.rows] = grads[1]
            if by_x is not None:
                torch.mm(by_w, A.T, out=by_x[part.rows])
            if by_A is not None:
                by_A.addmm_(own.T, by_w)
        return tuple(sums)

    @staticmethod
    def backward(ctx: Any, *directions: Tensor | None) -> tuple[Tensor | None, ...]:
        operands, needed = ctx.saved_tensors, list_wanted(ctx)
        if torch.is_grad_enabled() or needed[2]:
            grads = _differentiate_again(operands, directions, needed, ctx.graph)
        else:
            pairs = zip(operands[1:], directions, strict=True)
            moves = [torch.zeros_like(x) if d is None else d for x, d in pairs]
            grads = _differentiate_twice(operands, moves, needed, ctx.graph)
        return (*grads, None, None)


def _differentiate_twice(
    operands: Sequence[Tensor], directions: Sequence[Tensor], needed: Sequence[bool], graph: Graph
) -> Grads:
    """Return how the derivatives change along directions of h, Y, x and A, part by part."""
    g, h, Y, x, A = operands
    dh, dY, dx, dA = directions
    by_g, by_h, _, by_x, by_A = sums = _make_zeros(operands, needed)
    plan = graph.plan
    for part in graph.parts:
        own, move = x[part.rows], dx[part.rows]
        w, dw = own @ A, torch.addmm(move @ A, own, dA)
        inputs = [g[part.nodes], h.index_select(0, part.senders), Y[part.rows]]
        moves = [dh.index_select(0, part.senders), dY[part.rows], shape_weights(dw, plan)]
        inputs.append(shape_weights(w, plan))
        *grads, first = _tangents(inputs, moves, part.edges, plan.encode(), True)
        by_w, first = grads[2].flatten(1), first.flatten(1)
        if by_g is not None:
            by_g[part.nodes] = grads[0]
        if by_h is not None:
            by_h.index_add_(0, part.senders, grads[1])
        if by_x is not None:
            torch.addmm(by_w @ A.T, first, dA.T, out=by_x[part.rows])
        if by_A is not None:
            by_A.addmm_(own.T, by_w).addmm_(move.T, first)
    return sums


def _differentiate_again(
    operands: Sequence[Tensor],
    directions: Sequence[Tensor | None],
    needed: Sequence[bool],
    graph: Graph,
) -> Grads:
    """Return the same with all weights at once, differentiable."""
    moving = [(i, d) for i, d in enumerate(directions, 1) if d is not None]

    def differentiate(*inputs: Tensor) -> tuple[Tensor, ...]:
        g, h, Y, x, A = inputs
        for i, _ in moving:
            inputs[i].requires_grad_()
        w = shape_weights(x @ A, graph.plan)
        out = tensor_product(h, Y, w, graph.senders, graph.receivers, graph.plan)
        return torch.autograd.grad(out, [inputs[i] for i, _ in moving], g, create_graph=True)

    along = [d for _, d in moving]
    return [*differentiate_reference(differentiate, operands, needed, along)]


def _make_zeros(operands: Sequence[Tensor], wanted: Sequence[bool]) -> Grads:
    pairs = zip(operands, wanted, strict=True)
    return [torch.zeros_like(x) if want else None for x, want in pairs]
