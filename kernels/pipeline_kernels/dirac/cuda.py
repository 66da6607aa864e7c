"""Hops on NVIDIA GPUs: a program has some sites of one field.

Half a spinor, `(N, S/2)`, is a tuple of blocks as a matrix is (`su3/matrices_cuda.py`), with one
element per site. The derivative gathers for each link what hops over it give, so that no two
programs write to one place.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from pipeline_kernels.dirac.geometry import (
    ALL,
    How,
    Where,
    apply_signs,
    find_neighbours,
    find_parities,
)
from pipeline_kernels.su3.matrices_cuda import adjoint as adjoint_of
from pipeline_kernels.su3.matrices_cuda import multiply_numbers

BLOCK = tl.constexpr(64)  # sites of a program
HERE, THERE = 1, 2  # chi at the begin of a link, at its end


def combine_hops(psi: Tensor, other: Tensor | None, links: Tensor, *how: *How) -> Tensor:
    """Implement `reference.combine_hops`."""
    _, factors, extents, boundary, parity, adjoint = how
    out = psi.new_empty(psi.shape)
    if out.numel() == 0:
        return out
    batch, n_rhs, n_sites, _, n_colours = psi.shape
    signed = apply_signs(links, extents, boundary)
    arrays = tuple(_view_numbers(x) for x in (psi, psi if other is None else other, signed, out))
    numbers = torch.tensor(list(factors), dtype=psi.real.dtype, device=psi.device)
    sites = _list_sites(extents, parity, psi.device)
    tables = sites, *find_neighbours(tuple(extents), psi.device), numbers
    constants = len(extents), n_colours, int(adjoint), int(parity != ALL), int(other is not None)
    with torch.cuda.device_of(psi):
        _hop[(triton.cdiv(n_sites, BLOCK.value), batch * n_rhs)](
            arrays, tables, (n_sites, links.shape[2], n_rhs), *constants
        )
    return out


def hop_gradient(chi: Tensor, psi: Tensor, *where: *Where) -> Tensor:
    """Implement `reference.hop_gradient`."""
    extents, boundary, parity, adjoint = where
    batch, n_rhs, n_sites, _, n = psi.shape
    volume = n_sites if parity == ALL else 2 * n_sites
    out = psi.new_zeros(batch, len(extents), volume, n, n)
    if psi.numel() == 0:
        return out
    arrays = tuple(_view_numbers(x) for x in (chi, psi, out))
    ahead, _ = find_neighbours(tuple(extents), psi.device)
    halves = [(ALL, HERE | THERE)] if parity == ALL else [(parity, HERE), (1 - parity, THERE)]
    for half, ends in halves:
        sites = _list_sites(extents, half, psi.device)
        constants = len(extents), n, int(adjoint), int(parity != ALL), ends
        with torch.cuda.device_of(psi):
            _differentiate_links[(triton.cdiv(len(sites), BLOCK.value), batch)](
                arrays, (sites, ahead), (len(sites), n_sites, volume, n_rhs), *constants
            )
    return apply_signs(out, extents, boundary)


def _list_sites(extents: Sequence[int], parity: int, device: torch.device) -> Tensor:
    parities = find_parities(tuple(extents), device)
    if parity == ALL:
        return torch.arange(2 * len(parities[0]), device=device)
    return parities[parity]


def _view_numbers(x: Tensor) -> Tensor:
    return torch.view_as_real(x.resolve_conj().resolve_neg().contiguous())


@triton.constexpr_function
def find_partner(dimension, mu, s):
    """Return the column of row s of the corner of gamma_mu (hops.c)."""
    return 0 if dimension == 2 else (1 - s if mu in (1, 2) else s)


@triton.constexpr_function
def count_turns(dimension, mu, s):
    """Return the power of i at this place."""
    if dimension == 2:
        return (0, 3)[mu]
    return ((0, 0), (3, 3), (2, 0), (3, 1))[mu][s]


@triton.constexpr_function
def count_turns_back(dimension, mu, row):
    """Return the power of i in a row of the adjoint of the corner."""
    if dimension == 2:
        return (0, 1)[mu]
    return ((0, 0), (1, 1), (0, 2), (1, 3))[mu][row]


@triton.jit
def _hop(
    arrays,
    tables,
    sizes,
    D: tl.constexpr,
    N: tl.constexpr,
    ADJOINT: tl.constexpr,
    HALVED: tl.constexpr,
    HAS_OTHER: tl.constexpr,
):
    psi, other, links, out = arrays
    sites, ahead, behind, factors = tables
    n_sites, volume, n_rhs = sizes
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    kept = row < n_sites
    field = tl.program_id(1).to(tl.int64)
    first = field // n_rhs * D * volume  # link of this configuration
    x = tl.load(sites + row, kept, 0)
    zero = tl.load(psi + row, row < 0, 0.0)
    total = _repeat(zero, 2 * D * N)
    for mu in tl.static_range(D):
        up = tl.load(ahead + mu * volume + x, kept, 0)
        down = tl.load(behind + mu * volume + x, kept, 0)
        h = _project(psi, field * n_sites + (up >> HALVED), kept, mu, 1 - ADJOINT, D, N)
        U = _load(links, first + mu * volume + x, kept, 2 * N * N)
        total = _add_half(total, _transport(U, h, N), mu, 1 - ADJOINT, D, N)
        h = _project(psi, field * n_sites + (down >> HALVED), kept, mu, ADJOINT, D, N)
        U = adjoint_of(_load(links, first + mu * volume + down, kept, 2 * N * N))
        total = _add_half(total, _transport(U, h, N), mu, ADJOINT, D, N)
    at = (field * n_sites + row) * (2 * D * N)
    for s in tl.static_range(D):
        sign = 1 - 2 * (s // (D // 2))
        for i in tl.static_range(N):
            to = at + 2 * (s * N + i)
            u, v = total[2 * (s * N + i)], total[2 * (s * N + i) + 1]
            re, im = multiply_numbers(tl.load(factors), sign * tl.load(factors + 1), u, v)
            if HAS_OTHER:
                u, v = tl.load(other + to, kept, 0.0), tl.load(other + to + 1, kept, 0.0)
                d = sign * tl.load(factors + 3)
                u, v = multiply_numbers(tl.load(factors + 2), d, u, v)
                re += u
                im += v
            tl.store(out + to, re, kept)
            tl.store(out + to + 1, im, kept)


@triton.jit
def _differentiate_links(
    arrays,
    tables,
    sizes,
    D: tl.constexpr,
    N: tl.constexpr,
    ADJOINT: tl.constexpr,
    HALVED: tl.constexpr,
    ENDS: tl.constexpr,
):
    chi, psi, out = arrays
    sites, ahead = tables
    n_rows, n_sites, volume, n_rhs = sizes
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    kept = row < n_rows
    batch = tl.program_id(1).to(tl.int64)
    x = tl.load(sites + row, kept, 0)
    zero = tl.load(psi + row, row < 0, 0.0)
    for mu in tl.static_range(D):
        up = tl.load(ahead + mu * volume + x, kept, 0) >> HALVED
        total = _repeat(zero, 2 * N * N)
        for r in range(n_rhs):
            field = (batch * n_rhs + r) * n_sites
            if ENDS & 1:
                here = _project(chi, field + (x >> HALVED), kept, mu, 1 - ADJOINT, D, N)
                there = _project(psi, field + up, kept, mu, 1 - ADJOINT, D, N)
                total = _add_outer(total, here, there, N)
            if ENDS & 2:
                here = _project(psi, field + (x >> HALVED), kept, mu, ADJOINT, D, N)
                there = _project(chi, field + up, kept, mu, ADJOINT, D, N)
                total = _add_outer(total, here, there, N)
        at = ((batch * D + mu) * volume + x) * (2 * N * N)
        for k in tl.static_range(2 * N * N):
            tl.store(out + at + k, total[k], kept)


@triton.jit
def _project(
    psi, site, kept, MU: tl.constexpr, MINUS: tl.constexpr, D: tl.constexpr, N: tl.constexpr
):
    """Return the upper half of (1 - gamma_mu) psi, or of (1 + gamma_mu) psi, as (N, D / 2)."""
    at = site * (2 * D * N)
    out = ()
    for i in tl.static_range(N):
        for s in tl.static_range(D // 2):
            upper = at + 2 * (s * N + i)
            lower = at + 2 * ((D // 2 + find_partner(D, MU, s)) * N + i)
            re, im = tl.load(psi + upper, kept, 0.0), tl.load(psi + upper + 1, kept, 0.0)
            x, y = tl.load(psi + lower, kept, 0.0), tl.load(psi + lower + 1, kept, 0.0)
            x, y = _turn(x, y, count_turns(D, MU, s) + 2 * MINUS)
            out = out + (re + x, im + y)  # noqa: RUF005
    return out


@triton.jit
def _add_half(total, h, MU: tl.constexpr, MINUS: tl.constexpr, D: tl.constexpr, N: tl.constexpr):
    """Add the whole of a spinor of which `_project` gives the upper half."""
    HALF: tl.constexpr = D // 2
    out = ()
    for s in tl.static_range(D):
        for i in tl.static_range(N):
            if s < HALF:
                re, im = h[2 * (i * HALF + s)], h[2 * (i * HALF + s) + 1]
            else:
                re = h[2 * (i * HALF + find_partner(D, MU, s - HALF))]
                im = h[2 * (i * HALF + find_partner(D, MU, s - HALF)) + 1]
                re, im = _turn(re, im, count_turns_back(D, MU, s - HALF) + 2 * MINUS)
            out = out + (total[2 * (s * N + i)] + re, total[2 * (s * N + i) + 1] + im)  # noqa: RUF005
    return out


@triton.jit
def _turn(re, im, COUNT: tl.constexpr):
    """Multiply by a power of i."""
    if COUNT % 4 == 0:
        x, y = re, im
    elif COUNT % 4 == 1:
        x, y = -im, re
    elif COUNT % 4 == 2:
        x, y = -re, -im
    else:
        x, y = im, -re
    return x, y


@triton.jit
def _transport(U, h, N: tl.constexpr):
    """Multiply a link and half a spinor."""
    HALF: tl.constexpr = len(h) // (2 * N)
    out = ()
    for i in tl.static_range(N):
        for s in tl.static_range(HALF):
            re, im = multiply_numbers(U[2 * N * i], U[2 * N * i + 1], h[2 * s], h[2 * s + 1])
            for j in tl.static_range(1, N):
                u, v = U[2 * (N * i + j)], U[2 * (N * i + j) + 1]
                x, y = multiply_numbers(u, v, h[2 * (j * HALF + s)], h[2 * (j * HALF + s) + 1])
                re += x
                im += y
            out = out + (re, im)  # noqa: RUF005
    return out


@triton.jit
def _add_outer(total, first, second, N: tl.constexpr):
    """Add the sum over spins of first second^dagger."""
    HALF: tl.constexpr = len(first) // (2 * N)
    out = ()
    for i in tl.static_range(N):
        for j in tl.static_range(N):
            re, im = total[2 * (N * i + j)], total[2 * (N * i + j) + 1]
            for s in tl.static_range(HALF):
                a, b = first[2 * (i * HALF + s)], first[2 * (i * HALF + s) + 1]
                u, v = second[2 * (j * HALF + s)], second[2 * (j * HALF + s) + 1]
                x, y = multiply_numbers(a, b, u, -v)
                re += x
                im += y
            out = out + (re, im)  # noqa: RUF005
    return out


@triton.jit
def _load(source, rows, kept, COUNT: tl.constexpr):
    out = ()
    for k in tl.static_range(COUNT):
        out = out + (tl.load(source + rows * COUNT + k, kept, 0.0),)  # noqa: RUF005
    return out


@triton.jit
def _repeat(x, COUNT: tl.constexpr):
    out = ()
    for _ in tl.static_range(COUNT):
        out = out + (x,)  # noqa: RUF005
    return out
