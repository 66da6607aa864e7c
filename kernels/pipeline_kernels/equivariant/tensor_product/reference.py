"""The tensor product in plain PyTorch, the oracle of the fast implementations.

Two operands at a time: to choose an order for more takes `einsum` longer than to multiply them.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from pipeline_kernels.equivariant.tensor_product.plan import Path, ProductPlan


def product(
    h: Tensor, Y: Tensor, w: Tensor, ends: tuple[Tensor, Tensor], n_nodes: int, plan: ProductPlan
) -> Tensor:
    """Return `out_i = sum over edges e into i of sum_p w_ep C_p h_s(e) Y_e`.

    `ends` are sender and receiver of each edge; shapes as in `ProductPlan`.
    """
    senders, receivers = ends
    messages = []
    for p, path in enumerate(plan.paths):
        x, y, _ = (slice(row, row + dim) for row, dim in zip(path.rows, path.dims, strict=True))
        coupling = torch.einsum("ijk,ej->eik", _make_coefficients(path, h), Y[:, y])
        weighted = h[senders, x] * w[:, p, None]
        messages.append(torch.einsum("eik,eic->ekc", coupling, weighted))
    out = h.new_zeros(n_nodes, plan.dim_out, h.shape[2])
    return out.index_add(0, receivers, torch.cat(messages, 1))


def gradient(
    g: Tensor, h: Tensor, Y: Tensor, w: Tensor, ends: tuple[Tensor, Tensor], plan: ProductPlan
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the derivatives of `sum g * product(h, Y, w)` by h, Y and w."""
    senders, receivers = ends
    by_h, by_Y, by_w = torch.zeros_like(h), torch.zeros_like(Y), torch.zeros_like(w)
    for p, path in enumerate(plan.paths):
        x, y, z = (slice(row, row + dim) for row, dim in zip(path.rows, path.dims, strict=True))
        C, h_e, g_e = _make_coefficients(path, h), h[senders, x], g[receivers, z]
        w_e = w[:, p, None]
        message = torch.einsum("eik,ekc->eic", torch.einsum("ijk,ej->eik", C, Y[:, y]), g_e)
        by_h[:, x] = by_h[:, x].index_add(0, senders, message * w_e)
        by_Y[:, y] += torch.einsum("ijk,eik->ej", C, torch.einsum("eic,ekc->eik", h_e * w_e, g_e))
        by_w[:, p] = (h_e * message).sum(1)
    return by_h, by_Y, by_w


def tangents(
    operands: Sequence[Tensor],
    directions: Sequence[Tensor],
    ends: tuple[Tensor, Tensor],
    plan: ProductPlan,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the change of the gradients by g, h and w along directions, and the gradient by w.

    Args:
        operands: g, h, Y and w.
        directions: of h, Y and w, along which they change.
        ends: as there.
        plan: as there.
    """
    (g, h, Y, w), (dh, dY, dw) = operands, directions
    along_h, along_Y, along_w = (dh, Y, w), (h, dY, w), (h, Y, dw)
    by_g = torch.stack(
        [product(*factors, ends, len(g), plan) for factors in (along_h, along_Y, along_w)]
    ).sum(0)
    of_h, of_Y, of_w = (
        gradient(g, *factors, ends, plan) for factors in (along_h, along_Y, along_w)
    )
    return by_g, of_w[0] + of_Y[0], of_h[2] + of_Y[2], of_w[2]


def _make_coefficients(path: Path, like: Tensor) -> Tensor:
    return torch.as_tensor(path.compute_coefficients(), dtype=like.dtype, device=like.device)
