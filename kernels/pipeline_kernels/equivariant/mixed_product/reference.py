"""The tensor product with mixed weights in plain PyTorch, weights of all edges at once."""

from collections.abc import Sequence

from torch import Tensor

from pipeline_kernels.equivariant.tensor_product import ProductPlan, reference


def product(
    h: Tensor, Y: Tensor, x: Tensor, A: Tensor, edges: Sequence[Tensor], plan: ProductPlan
) -> Tensor:
    """Return `out_i = sum over edges e into i of sum_p (x_e A)_p C_p h_s(e) Y_e`.

    `edges` are index, order and offsets of senders, then of receivers.
    """
    n_nodes = edges[5].shape[0] - 1
    return reference.product(h, Y, _mix(x, A, plan), _find_ends(edges), n_nodes, plan)


def gradient(
    operands: Sequence[Tensor], edges: Sequence[Tensor], plan: ProductPlan
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the derivatives of `sum g * product(h, Y, x, A)` by h, Y, x and A."""
    g, h, Y, x, A = operands
    ends = _find_ends(edges)
    by_h, by_Y, by_w = reference.gradient(g, h, Y, _mix(x, A, plan), ends, plan)
    by_w = by_w.flatten(1)
    return by_h, by_Y, by_w @ A.T, x.T @ by_w


def tangents(
    operands: Sequence[Tensor],
    directions: Sequence[Tensor],
    edges: Sequence[Tensor],
    plan: ProductPlan,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return how the derivatives of `sum g * product(h, Y, x, A)` by g, h, x and A change.

    Args:
        operands: g, h, Y, x and A.
        directions: of h, Y and x, along which they change.
        edges: as there.
        plan: as there.
    """
    (g, h, Y, x, A), (dh, dY, dx) = operands, directions
    factors, moves = [g, h, Y, _mix(x, A, plan)], [dh, dY, _mix(dx, A, plan)]
    ends = _find_ends(edges)
    by_g, by_h, by_w, first = reference.tangents(factors, moves, ends, plan, True)
    by_w, first = by_w.flatten(1), first.flatten(1)
    return by_g, by_h, by_w @ A.T, x.T @ by_w + dx.T @ first


def _mix(x: Tensor, A: Tensor, plan: ProductPlan) -> Tensor:
    return (x @ A).unflatten(1, (plan.n_paths, -1))


def _find_ends(edges: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    return edges[0], edges[3]
