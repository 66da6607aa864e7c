"""Layers of staples, and their derivatives, in plain PyTorch."""

import torch
from torch import Tensor

from pipeline_kernels.su3.matrices import conjugate_transpose


def staple_layer(
    S: Tensor, coefficients: Tensor, forward: Tensor, backward: Tensor, mask: Tensor
) -> Tensor:
    """Return combinations `(batch, K', D, V, N, N)` of links and staples, zero off the mask."""
    combined = torch.einsum(
        "kj,njdxab->nkdxab", coefficients.to(S.dtype), compute_staples(S, forward, backward)
    )
    return (combined * mask[..., None, None]).contiguous()


def staple_gradient(
    S: Tensor,
    coefficients: Tensor,
    G: Tensor,
    forward: Tensor,
    backward: Tensor,
    mask: Tensor,
) -> tuple[Tensor, Tensor]:
    """Differentiate `staple_layer` by S and coefficients, where G is the derivative by its result.

    Itself differentiable by all three, any number of times.
    """
    G = G * mask[..., None, None]
    products = compute_staples(S, forward, backward)
    by_coefficients = torch.einsum("nkdxab,njdxab->kj", G, products.conj_physical()).real
    by_products = torch.einsum("kj,nkdxab->njdxab", coefficients.to(S.dtype), G)
    by_S = differentiate_staples(S, by_products, forward, backward)
    return by_S, by_coefficients.to(coefficients.dtype).contiguous()


def compute_staples(S: Tensor, forward: Tensor, backward: Tensor) -> Tensor:
    """Return links and staples, blocks [S, R_nu.., L_nu..] of K each, `(batch, J, D, V, N, N)`."""
    blocks = []
    for mu in range(S.shape[2]):
        right, left = [], []
        for a, b, c in _gather_factors(S, mu, forward, backward):
            right.append(a[0] @ b[0] @ conjugate_transpose(c[0]))
            left.append(conjugate_transpose(a[1]) @ b[1] @ c[1])
        blocks.append(torch.cat([S[:, :, mu], *right, *left], 1))
    return torch.stack(blocks, 2)


def differentiate_staples(S: Tensor, G: Tensor, forward: Tensor, backward: Tensor) -> Tensor:
    """Return the derivative by S, where G is that by `compute_staples`."""
    K, D = S.shape[1:3]
    total = [G[:, :K, mu] for mu in range(D)]
    for mu in range(D):
        blocks = G[:, K:, mu].unflatten(1, (-1, K)).unbind(1)
        for i, (a, b, c) in enumerate(_gather_factors(S, mu, forward, backward)):
            nu, g, h = i + (i >= mu), blocks[i], blocks[i + D - 1]
            places = _find_places(mu, nu, forward, backward)
            by_right = (
                g @ c[0] @ conjugate_transpose(b[0]),
                conjugate_transpose(a[0]) @ g @ c[0],
                conjugate_transpose(g) @ a[0] @ b[0],
            )
            by_left = (
                b[1] @ c[1] @ conjugate_transpose(h),
                a[1] @ h @ conjugate_transpose(c[1]),
                conjugate_transpose(b[1]) @ a[1] @ h,
            )
            for direction, right, left, to in zip(
                (nu, mu, nu), by_right, by_left, places, strict=True
            ):
                total[direction] = total[direction].index_add(2, to[0], right)
                total[direction] = total[direction].index_add(2, to[1], left)
    return torch.stack(total, 2)


def _find_places(
    mu: int, nu: int, forward: Tensor, backward: Tensor
) -> tuple[tuple[Tensor, Tensor], ...]:
    """Return the first sites of the left, middle and right link of each site's two staples."""
    here = torch.arange(forward.shape[1], device=forward.device)
    up, down = forward[nu], backward[nu]
    return (here, down), (up, down), (forward[mu], forward[mu][down])


def _gather_factors(
    S: Tensor, mu: int, forward: Tensor, backward: Tensor
) -> list[tuple[tuple[Tensor, Tensor], ...]]:
    """Return for each direction nu the left, middle and right link, of both staples."""
    factors = []
    for nu in range(S.shape[2]):
        if nu != mu:
            places = _find_places(mu, nu, forward, backward)
            factors.append(
                tuple(
                    (S[:, :, direction, first], S[:, :, direction, second])
                    for direction, (first, second) in zip((nu, mu, nu), places, strict=True)
                )
            )
    return factors
