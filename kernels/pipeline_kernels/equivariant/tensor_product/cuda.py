"""The tensor product on NVIDIA GPUs: Triton, each result written by one program in a fixed order.

The plan is a constant of the compiled kernels: its paths are unrolled. A path of an edge couples
tiles of components, padded to powers of two, by channels,

    T[m1, m3] = sum_m2 C[m1, m2, m3] Y[m2],    out[m3] += sum_m1 T[m1, m3] w h[m1],
    u[m1] = sum_m3 T[m1, m3] g[m3],            dh[m1] += w u[m1],   dw = sum_m1 h[m1] u[m1],
    dT[m1, m3] = sum_c w h[m1] g[m3],          dY[m2] += sum_{m1 m3} C[m1, m2, m3] dT[m1, m3].
"""

from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from pipeline_kernels.equivariant.tensor_product.plan import ProductPlan

MAX_BLOCK = 128  # channels that a program holds at once

Edges = Sequence[Tensor]  # index, order and offsets of senders, then of receivers


def product(h: Tensor, Y: Tensor, w: Tensor, edges: Edges, code: Sequence[int]) -> Tensor:
    """Implement `reference.product` for the plan of `code`."""
    plan = _decode(tuple(code))
    senders, _, _, _, order, offsets = (x.contiguous() for x in edges)
    n_nodes, channels = len(offsets) - 1, h.shape[2]
    out = h.new_empty(n_nodes, plan.dim_out, channels)
    if out.numel() > 0:
        block = _choose_block(channels)
        grid = (n_nodes, plan.n_paths, triton.cdiv(channels, block))
        with torch.cuda.device_of(h):
            _product[grid](
                out,
                (h.contiguous(), Y.contiguous(), w.contiguous()),
                _make_coefficients(plan, h.dtype, h.device),
                (senders, order if len(order) else None, offsets),
                channels,
                plan,
                block,
            )
    return out


def gradient(
    operands: Sequence[Tensor], edges: Edges, code: Sequence[int], wanted: Sequence[bool]
) -> tuple[Tensor, Tensor, Tensor]:
    """Implement `reference.gradient`; unwanted results by h, Y and w are empty."""
    plan = _decode(tuple(code))
    g, h, Y, w = (x.contiguous() for x in operands)
    senders, order, offsets, receivers, _, _ = (x.contiguous() for x in edges)
    C, channels = _make_coefficients(plan, h.dtype, h.device), h.shape[2]
    by_h, by_Y, by_w = (
        x.new_empty(x.shape if want else (0,) * x.ndim)
        for x, want in zip((h, Y, w), wanted, strict=True)
    )
    block = _choose_block(channels)
    with torch.cuda.device_of(h):
        if by_h.numel() > 0:
            grid = (len(offsets) - 1, len(plan.irreps_in), triton.cdiv(channels, block))
            lists = receivers, order if len(order) else None, offsets
            _gradient_by_sender[grid](by_h, (g, Y, w), C, lists, channels, plan, block)
        if by_Y.numel() + by_w.numel() > 0:
            results = by_Y if wanted[1] else None, by_w if wanted[2] else None
            ends = senders, receivers
            _gradient_by_edge[(len(Y),)](results, (g, h, Y, w), C, ends, channels, plan, block)
    return by_h, by_Y, by_w


_decode = cache(ProductPlan.decode)


@cache
def _make_coefficients(plan: ProductPlan, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return `C[m2, m1, m3]` of one path after the other, flattened."""
    parts = [path.compute_coefficients().swapaxes(0, 1).flatten() for path in plan.paths]
    return torch.as_tensor(np.concatenate(parts), dtype=dtype, device=device)


def _choose_block(channels: int) -> int:
    block: int = triton.next_power_of_2(max(1, channels))
    return min(MAX_BLOCK, block)


@triton.jit
def _product(out, operands, C, edges, channels: tl.int64, PLAN: tl.constexpr, BLOCK: tl.constexpr):
    """Sum one path over the edges that one node receives, for some channels."""
    for p in tl.static_range(_count(PLAN.paths)):
        if tl.program_id(1) == p:
            _path_product(out, operands, C, edges, channels, PLAN, p, BLOCK)


@triton.jit
def _path_product(
    out, operands, C, edges, channels, PLAN: tl.constexpr, p: tl.constexpr, BLOCK: tl.constexpr
):
    d1: tl.constexpr = PLAN.paths[p].dims[0]
    d3: tl.constexpr = PLAN.paths[p].dims[2]
    h, Y, w = operands
    senders, order, offsets = edges
    n, c = tl.program_id(0).to(tl.int64), tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((_round_up(d3), BLOCK), C.dtype.element_ty)
    k, end = tl.load(offsets + n), tl.load(offsets + n + 1)
    while k < end:
        e = k if order is None else tl.load(order + k)
        row = tl.load(senders + e) * PLAN.dim_in + PLAN.paths[p].rows[0]
        weight = _load(w + (e * PLAN.n_paths + p) * channels, 1, channels, c)
        x = weight * _load(h + row * channels, d1, channels, c)
        T = _couple(Y + e * PLAN.dim_sh, C, PLAN, p)
        total += tl.sum(T[:, :, None] * x[:, None, :], 0)
        k += 1
    row = n * PLAN.dim_out + PLAN.paths[p].rows[2]
    _store(out + row * channels, d3, total, channels, c)


@triton.jit
def _gradient_by_sender(
    by_h, operands, C, edges, channels: tl.int64, PLAN: tl.constexpr, BLOCK: tl.constexpr
):
    """Sum the derivative by one feature of a node over the edges that it sends, all paths."""
    for source in tl.static_range(_count(PLAN.irreps_in)):
        if tl.program_id(1) == source:
            _source_gradient(by_h, operands, C, edges, channels, PLAN, source, BLOCK)


@triton.jit
def _source_gradient(
    by_h,
    operands,
    C,
    edges,
    channels,
    PLAN: tl.constexpr,
    source: tl.constexpr,
    BLOCK: tl.constexpr,
):
    d1: tl.constexpr = PLAN.irreps_in[source].dim
    g, Y, w = operands
    receivers, order, offsets = edges
    n, c = tl.program_id(0).to(tl.int64), tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((_round_up(d1), BLOCK), C.dtype.element_ty)
    k, end = tl.load(offsets + n), tl.load(offsets + n + 1)
    while k < end:
        e = k if order is None else tl.load(order + k)
        g_rows = g + tl.load(receivers + e) * PLAN.dim_out * channels
        for p in tl.static_range(_count(PLAN.paths)):
            if PLAN.paths[p].source == source:
                weight = _load(w + (e * PLAN.n_paths + p) * channels, 1, channels, c)
                T = _couple(Y + e * PLAN.dim_sh, C, PLAN, p)
                total += weight * _pull_back(T, g_rows, channels, c, PLAN, p)
        k += 1
    row = n * PLAN.dim_in + _find_row(PLAN, source)
    _store(by_h + row * channels, d1, total, channels, c)


@triton.jit
def _gradient_by_edge(
    results, operands, C, ends, channels: tl.int64, PLAN: tl.constexpr, BLOCK: tl.constexpr
):
    """Store the derivatives by harmonics and weights of one edge."""
    by_Y, by_w = results
    g, h, Y, w = operands
    e, m = tl.program_id(0).to(tl.int64), tl.arange(0, _round_up(PLAN.dim_sh))
    h_rows = h + tl.load(ends[0] + e) * PLAN.dim_in * channels
    g_rows = g + tl.load(ends[1] + e) * PLAN.dim_out * channels
    Y_row = Y + e * PLAN.dim_sh
    dY = tl.zeros((_round_up(PLAN.dim_sh),), C.dtype.element_ty)
    for p in tl.static_range(_count(PLAN.paths)):
        row = (e * PLAN.n_paths + p) * channels
        dw = by_w + row if by_w is not None else None
        rows = g_rows, h_rows, Y_row, w + row
        dY += _path_gradient(dw, by_Y is not None, rows, C, channels, PLAN, p, BLOCK)
    if by_Y is not None:
        tl.store(by_Y + e * PLAN.dim_sh + m, dY, m < PLAN.dim_sh)


@triton.jit
def _path_gradient(
    dw,
    WITH_Y: tl.constexpr,
    rows,
    C,
    channels,
    PLAN: tl.constexpr,
    p: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Store the derivative by the weight of a path; returns that by the harmonics."""
    d1: tl.constexpr = PLAN.paths[p].dims[0]
    d2: tl.constexpr = PLAN.paths[p].dims[1]
    d3: tl.constexpr = PLAN.paths[p].dims[2]
    g, h, Y, w = rows
    T = _couple(Y, C, PLAN, p)
    dT = tl.zeros_like(T)
    c = tl.arange(0, BLOCK).to(tl.int64)
    while tl.min(c) < channels:
        x = _load(h + PLAN.paths[p].rows[0] * channels, d1, channels, c)
        if dw is not None:
            change = tl.sum(x * _pull_back(T, g, channels, c, PLAN, p), 0)
            _store(dw, 1, change[None, :], channels, c)
        if WITH_Y:
            x *= _load(w, 1, channels, c)
            z = _load(g + PLAN.paths[p].rows[2] * channels, d3, channels, c)
            dT += tl.sum(x[:, None, :] * z[None, :, :], 2)
        c += BLOCK
    m = tl.arange(0, _round_up(PLAN.dim_sh))
    dY = tl.zeros((_round_up(PLAN.dim_sh),), C.dtype.element_ty)
    if WITH_Y:
        for m2 in tl.static_range(d2):
            change = tl.sum(_load_coefficients(C, PLAN, p, m2) * dT)
            dY = tl.where(m == PLAN.paths[p].rows[1] + m2, change, dY)
    return dY


@triton.jit
def _couple(Y, C, PLAN: tl.constexpr, p: tl.constexpr):
    """Return `T[m1, m3]` of an edge."""
    d2: tl.constexpr = PLAN.paths[p].dims[1]
    T = tl.load(Y + PLAN.paths[p].rows[1]) * _load_coefficients(C, PLAN, p, 0)
    for m2 in tl.static_range(1, d2):
        T += tl.load(Y + PLAN.paths[p].rows[1] + m2) * _load_coefficients(C, PLAN, p, m2)
    return T


@triton.jit
def _pull_back(T, g, channels, c, PLAN: tl.constexpr, p: tl.constexpr):
    """Return `u[m1]` of an edge."""
    z = _load(g + PLAN.paths[p].rows[2] * channels, PLAN.paths[p].dims[2], channels, c)
    return tl.sum(T[:, :, None] * z[None, :, :], 1)


@triton.jit
def _load_coefficients(C, PLAN: tl.constexpr, p: tl.constexpr, m2: tl.constexpr):
    d1: tl.constexpr = PLAN.paths[p].dims[0]
    d3: tl.constexpr = PLAN.paths[p].dims[2]
    i, k = tl.arange(0, _round_up(d1))[:, None], tl.arange(0, _round_up(d3))[None, :]
    return tl.load(C + _start(PLAN, p) + (m2 * d1 + i) * d3 + k, (i < d1) & (k < d3), 0.0)


@triton.jit
def _load(rows, count: tl.constexpr, channels, c):
    row = tl.arange(0, _round_up(count))[:, None]
    mask = (row < count) & (c < channels)[None, :]
    return tl.load(rows + row * channels + c[None, :], mask, 0.0)


@triton.jit
def _store(rows, count: tl.constexpr, values, channels, c):
    row = tl.arange(0, _round_up(count))[:, None]
    mask = (row < count) & (c < channels)[None, :]
    tl.store(rows + row * channels + c[None, :], values, mask)


@triton.constexpr_function
def _round_up(count):
    return triton.next_power_of_2(count)


@triton.constexpr_function
def _count(things):
    return len(things)


@triton.constexpr_function
def _start(plan, p):
    """Return the offset of the coefficients of a path."""
    return sum(d1 * d2 * d3 for d1, d2, d3 in (path.dims for path in plan.paths[:p]))


@triton.constexpr_function
def _find_row(plan, source):
    """Return the offset of the components of an input feature."""
    return sum(irrep.dim for irrep in plan.irreps_in[:source])
