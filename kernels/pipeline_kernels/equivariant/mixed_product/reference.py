"""The tensor product with mixed weights in plain PyTorch, weights of all rows at once."""

from collections.abc import Sequence

from torch import Tensor

from pipeline_kernels.equivariant.mixed_product.graph import Graph
from pipeline_kernels.equivariant.tensor_product import ProductPlan, reference


def product(h: Tensor, Y: Tensor, x: Tensor, A: Tensor, graph: Graph, plan: ProductPlan) -> Tensor:
    """Return `out_i = sum over edges e into i of sum_p (x A)_{r(e) p} C_p h_s(e) Y_e`."""
    w = _mix(x, A, graph, plan)
    return reference.product(h, Y, w, _find_ends(graph), graph.receivers.n_segments, plan)


def gradient(
    operands: Sequence[Tensor], graph: Graph, plan: ProductPlan
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the derivatives of `sum g * product(h, Y, x, A)` by h, Y, x and A."""
    g, h, Y, x, A = operands
    w = _mix(x, A, graph, plan)
    by_h, by_Y, by_w = reference.gradient(g, h, Y, w, _find_ends(graph), plan)
    by_w = _add_up(by_w, graph)
    return by_h, by_Y, by_w @ A.T, x.T @ by_w


def tangents(
    operands: Sequence[Tensor], directions: Sequence[Tensor], graph: Graph, plan: ProductPlan
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return directional derivatives of the gradients of `sum g * product(h, Y, x, A)`.

    Args:
        operands: g, h, Y, x and A.
        directions: of h, Y and x, along which they change.
        graph: the edges.
        plan: the paths.
    """
    (g, h, Y, x, A), (dh, dY, dx) = operands, directions
    factors = [g, h, Y, _mix(x, A, graph, plan)]
    moves = [dh, dY, _mix(dx, A, graph, plan)]
    by_g, by_h, by_w, first = reference.tangents(factors, moves, _find_ends(graph), plan)
    by_w, first = _add_up(by_w, graph), _add_up(first, graph)
    return by_g, by_h, by_w @ A.T, x.T @ by_w + dx.T @ first


def _mix(x: Tensor, A: Tensor, graph: Graph, plan: ProductPlan) -> Tensor:
    """Return the weights of each edge, (n_edges, n_paths, C)."""
    mixed = (x @ A).to(x.dtype)  # autocast multiplies in another type
    weights: Tensor = mixed[graph.rows.index].unflatten(1, (plan.n_paths, -1))
    return weights


def _add_up(by_w: Tensor, graph: Graph) -> Tensor:
    """Return the sums over the edges of each row, (n_rows, n_paths C)."""
    by_w = by_w.flatten(1)
    sums = by_w.new_zeros(graph.rows.n_segments, by_w.shape[1])
    return sums.index_add(0, graph.rows.index, by_w)


def _find_ends(graph: Graph) -> tuple[Tensor, Tensor]:
    return graph.senders.index, graph.receivers.index
