"""Layers of staples on NVIDIA GPUs: Triton for the products, matrix products for combinations.

A program holds one link of some channels and samples. The derivative gathers for each link what all
staples that it belongs to give, so that no two programs write to one place.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from pipeline_kernels.su3.matrices_cuda import add_scaled, adjoint, multiply

BLOCK = 64  # matrices of a program
TILE_BYTES = 2**28  # of staples that are held at once


def staple_layer(
    S: Tensor, coefficients: Tensor, forward: Tensor, backward: Tensor, mask: Tensor
) -> Tensor:
    """Implement `reference.staple_layer`."""
    out = S.new_empty(S.shape[0], coefficients.shape[0], *S.shape[2:])
    weights, tables = coefficients.to(S.dtype), (forward, backward, mask)
    for tile in _cut_tiles(S):
        products = _compute_staples(S[tile], *tables).flatten(2)
        torch.matmul(weights, products, out=out[tile].flatten(2))
    return out


def staple_gradient(
    S: Tensor, coefficients: Tensor, G: Tensor, forward: Tensor, backward: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor]:
    """Implement `reference.staple_gradient`."""
    weights, tables = coefficients.to(S.dtype), (forward, backward, mask)
    by_S, by_coefficients = S.new_empty(S.shape), torch.zeros_like(weights)
    for tile in _cut_tiles(S):
        g = (G[tile] * mask[..., None, None]).flatten(2)
        products = _compute_staples(S[tile], *tables).flatten(2)
        by_coefficients += torch.matmul(g, products.mH).sum(0)
        by_products = torch.matmul(weights.T, g)
        _pull_staples(S[tile], by_products, by_S[tile], *tables)
    return by_S, by_coefficients.real.to(coefficients.dtype)


def _cut_tiles(S: Tensor) -> list[slice]:
    """Cut the samples so that the staples of each part fit into `TILE_BYTES`."""
    n_bytes = S.element_size() * math.prod(S.shape[1:]) * (2 * S.shape[2] - 1)
    step = max(1, TILE_BYTES // max(1, n_bytes))
    return [slice(first, first + step) for first in range(0, S.shape[0], step)]


def _compute_staples(S: Tensor, forward: Tensor, backward: Tensor, mask: Tensor) -> Tensor:
    """Return `reference.compute_staples` where the mask is set, otherwise zero."""
    D = S.shape[2]
    out = S.new_empty(S.shape[0], S.shape[1] * (2 * D - 1), *S.shape[2:])
    _launch(_multiply_staples, S, out, None, forward, backward, mask)
    return out


def _pull_staples(
    S: Tensor, by: Tensor, out: Tensor, forward: Tensor, backward: Tensor, mask: Tensor
) -> None:
    """Write `reference.differentiate_staples`; `by` is zero where the mask is not set."""
    _launch(_differentiate_link, S, out, by, forward, backward, mask)


def _launch(
    kernel: triton.JITFunction, S: Tensor, out: Tensor, by: Tensor | None, *tables: Tensor
) -> None:
    B, K, D, V, N, _ = S.shape
    if S.numel() == 0:
        return
    arrays = [torch.view_as_real(x.resolve_conj().contiguous()) for x in (S, out)]
    others = [torch.view_as_real(by.contiguous())] if by is not None else []
    forward, backward, mask = (table.contiguous() for table in tables)
    lists = forward, backward, mask.to(torch.int8)
    with torch.cuda.device_of(S):
        kernel[(D * V, triton.cdiv(B * K, BLOCK))](
            (*arrays, *others), lists, (B * K, K, V), D, N, BLOCK
        )


@triton.jit
def _multiply_staples(arrays, tables, sizes, D: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr):
    s, out = arrays
    forward, backward, mask = tables
    total, K, V = sizes
    link = tl.program_id(0)
    mu, x = link // V, link % V
    row = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)  # sample * K + channel
    links = row * D  # numbers of the first link
    to = (row // K * (2 * D - 1) * K + row % K) * D
    active = tl.load(mask + link) != 0
    kept, empty = (row < total) & active, (row < total) & (active == 0)
    _store(out, _load(s, links, mu, x, V, kept, N), to, mu, x, V, kept, empty)
    for other in range(D - 1):
        nu = other + tl.where(other >= mu, 1, 0)
        up, ahead = tl.load(forward + nu * V + x), tl.load(forward + mu * V + x)
        down = tl.load(backward + nu * V + x)
        turn = tl.load(forward + mu * V + down)
        a, b = _load(s, links, nu, x, V, kept, N), _load(s, links, mu, up, V, kept, N)
        c = _load(s, links, nu, ahead, V, kept, N)
        staple = multiply(multiply(a, b), adjoint(c))
        _store(out, staple, to + (1 + other) * K * D, mu, x, V, kept, empty)
        a, b = _load(s, links, nu, down, V, kept, N), _load(s, links, mu, down, V, kept, N)
        c = _load(s, links, nu, turn, V, kept, N)
        staple = multiply(adjoint(a), multiply(b, c))
        _store(out, staple, to + (D + other) * K * D, mu, x, V, kept, empty)


@triton.jit
def _differentiate_link(
    arrays, tables, sizes, D: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr
):
    """Add up the parts of one link in the staples of others.

    With R = a b c^dagger and L = a^dagger b c, a derivative g by them gives: a of R, g c b^dagger;
    b, a^dagger g c; c, g^dagger a b; a of L, b c g^dagger; b, a g c^dagger; c, b^dagger a g.
    """
    s, out, by = arrays
    forward, backward, _ = tables
    total, K, V = sizes
    link = tl.program_id(0)
    mu, y = link // V, link % V
    row = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    kept = row < total
    links = row * D
    at = (row // K * (2 * D - 1) * K + row % K) * D
    sum_of = _load(by, at, mu, y, V, kept, N)
    ahead = tl.load(forward + mu * V + y)
    for other in range(D - 1):
        nu = other + tl.where(other >= mu, 1, 0)
        up, down = tl.load(forward + nu * V + y), tl.load(backward + nu * V + y)
        turn = tl.load(forward + mu * V + down)
        # blocks of R and L of direction nu at mu, then of direction mu at nu
        right, left = at + (1 + other) * K * D, at + (D + other) * K * D
        back = mu - tl.where(mu > nu, 1, 0)
        cross_right, cross_left = at + (1 + back) * K * D, at + (D + back) * K * D
        upper, lower = _load(s, links, mu, up, V, kept, N), _load(s, links, mu, down, V, kept, N)
        here, beyond = _load(s, links, nu, y, V, kept, N), _load(s, links, nu, ahead, V, kept, N)
        first, last = _load(s, links, nu, down, V, kept, N), _load(s, links, nu, turn, V, kept, N)
        # a of R at y, a of L at y + mu
        g = _load(by, cross_right, nu, y, V, kept, N)
        sum_of = add_scaled(sum_of, multiply(g, multiply(upper, adjoint(beyond))), 1.0)
        g = _load(by, cross_left, nu, ahead, V, kept, N)
        sum_of = add_scaled(sum_of, multiply(here, multiply(upper, adjoint(g))), 1.0)
        # b of R at y - nu, b of L at y + nu
        g = _load(by, right, mu, down, V, kept, N)
        sum_of = add_scaled(sum_of, multiply(adjoint(first), multiply(g, last)), 1.0)
        g = _load(by, left, mu, up, V, kept, N)
        sum_of = add_scaled(sum_of, multiply(here, multiply(g, adjoint(beyond))), 1.0)
        # c of R at y - nu, c of L at y - nu + mu
        g = _load(by, cross_right, nu, down, V, kept, N)
        sum_of = add_scaled(sum_of, multiply(adjoint(g), multiply(lower, last)), 1.0)
        g = _load(by, cross_left, nu, turn, V, kept, N)
        sum_of = add_scaled(sum_of, multiply(adjoint(first), multiply(lower, g)), 1.0)
    _store(out, sum_of, links, mu, y, V, kept, row < 0)


@triton.jit
def _load(source, links, direction, site, V, kept, N: tl.constexpr):
    """Load a link of each sample and channel, zero where not kept."""
    start = ((links + direction) * V + site) * (2 * N * N)
    out = ()
    for i in tl.static_range(2 * N * N):
        out = out + (tl.load(source + start + i, kept, 0.0),)  # noqa: RUF005
    return out


@triton.jit
def _store(target, a, links, direction, site, V, kept, empty):
    """Store a link of each sample and channel, or zero."""
    start = ((links + direction) * V + site) * len(a)
    for i in tl.static_range(len(a)):
        tl.store(target + start + i, tl.where(empty, 0.0, a[i]), kept | empty)
