"""Layers of staples, and their derivatives, in plain PyTorch."""

import torch
from torch import Tensor


def staple_layer(
    S: Tensor, coefficients: Tensor, forward: Tensor, backward: Tensor, mask: Tensor
) -> Tensor:
    """Returns combinations `(batch, K', D, V, N, N)` of links and staples, zero off the mask."""
    combined = torch.einsum(
        "kj,njdxab->nkdxab", coefficients.to(S.dtype), staples(S, forward, backward)
    )
    return combined * mask[..., None, None]


def staple_gradient(
    S: Tensor,
    coefficients: Tensor,
    G: Tensor,
    forward: Tensor,
    backward: Tensor,
    mask: Tensor,
) -> tuple[Tensor, Tensor]:
    """Differentiates `staple_layer` by S and coefficients, where G is the derivative by its result.

    Itself differentiable by all three, any number of times.
    """
    G = G * mask[..., None, None]
    products = staples(S, forward, backward)
    by_coefficients = torch.einsum("nkdxab,njdxab->kj", G, products.conj()).real
    by_products = torch.einsum("kj,nkdxab->njdxab", coefficients.to(S.dtype), G)
    by_S = staples_transposed(S, by_products, forward, backward)
    return by_S, by_coefficients.to(coefficients.dtype)


def staples(S: Tensor, forward: Tensor, backward: Tensor) -> Tensor:
    """Returns links and staples, blocks [S, R_nu.., L_nu..] of K each, `(batch, J, D, V, N, N)`."""
    found = []
    for mu in range(S.shape[2]):
        right, left = [], []
        for a, b, c in _factors(S, mu, forward, backward):
            right.append(a[0] @ b[0] @ c[0].mH)
            left.append(a[1].mH @ b[1] @ c[1])
        found.append(torch.cat([S[:, :, mu], *right, *left], 1))
    return torch.stack(found, 2)


def staples_transposed(S: Tensor, G: Tensor, forward: Tensor, backward: Tensor) -> Tensor:
    """Returns the derivative by S, where G is that by `staples`."""
    K, D = S.shape[1:3]
    total = [G[:, :K, mu] for mu in range(D)]
    for mu in range(D):
        blocks = G[:, K:, mu].split(K, 1)
        for i, (a, b, c) in enumerate(_factors(S, mu, forward, backward)):
            nu, g, h = i + (i >= mu), blocks[i], blocks[i + D - 1]
            places = _places(mu, nu, forward, backward)
            by_right = (g @ c[0] @ b[0].mH, a[0].mH @ g @ c[0], g.mH @ a[0] @ b[0])
            by_left = (b[1] @ c[1] @ h.mH, a[1] @ h @ c[1].mH, b[1].mH @ a[1] @ h)
            for direction, right, left, to in zip(
                (nu, mu, nu), by_right, by_left, places, strict=True
            ):
                total[direction] = total[direction].index_add(2, to[0], right)
                total[direction] = total[direction].index_add(2, to[1], left)
    return torch.stack(total, 2)


def _places(
    mu: int, nu: int, forward: Tensor, backward: Tensor
) -> tuple[tuple[Tensor, Tensor], ...]:
    """Returns where left, middle and right link of each site's two staples start."""
    here = torch.arange(forward.shape[1], device=forward.device)
    up, down = forward[nu], backward[nu]
    return (here, down), (up, down), (forward[mu], forward[mu][down])


def _factors(
    S: Tensor, mu: int, forward: Tensor, backward: Tensor
) -> list[tuple[tuple[Tensor, Tensor], ...]]:
    """Returns for each direction nu the left, middle and right link, of both staples."""
    found = []
    for nu in range(S.shape[2]):
        if nu != mu:
            places = _places(mu, nu, forward, backward)
            found.append(
                tuple(
                    (S[:, :, direction, first], S[:, :, direction, second])
                    for direction, (first, second) in zip((nu, mu, nu), places, strict=True)
                )
            )
    return found
