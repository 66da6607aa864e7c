"""Rotation to the frames of edges and back on NVIDIA GPUs: Triton.

A program holds the components of one degree of one edge (or row of a table), for some channels, and
goes over the columns or rows of a block of the Wigner matrix. Each result is written by one program
in a fixed order. Factors of one degree stand for all where there is one alone.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from pipeline_kernels.equivariant.so2.ends import Rows

TILE_BYTES = 2**28  # of operands of a matrix product
MAX_BLOCK = 64  # channels that a program holds at once


def lift(y: Tensor, x: Tensor, frames: Tensor, factors: Tensor | None, *rows: *Rows) -> None:
    """Implement `reference.lift`."""
    ends, layout, turned = rows
    grid, block = _make_grid(y, len(y))
    if y.numel():
        with torch.cuda.device_of(y):
            _lift[grid](
                y,
                (x, frames, factors),
                (ends.index, ends.span[0]),
                _find_sizes(y, factors, turned),
                layout,
                block,
            )


def lower(x: Tensor, y: Tensor, frames: Tensor, factors: Tensor | None, *rows: *Rows) -> None:
    """Implement `reference.lower`."""
    ends, layout, turned = rows
    grid, block = _make_grid(y, len(y) if ends.first is None else len(ends.first))
    order = ends.order if ends.order is not None and len(ends.order) else None
    lists = order, ends.first, ends.last
    if y.numel():
        with torch.cuda.device_of(y):
            _lower[(*grid, layout.lmax + 1)](
                x,
                (y, frames, factors),
                lists,
                ends.span[0],
                _find_sizes(y, factors, turned),
                layout,
                block,
            )


def factor_gradient(by_factors: Tensor, y: Tensor, x: Tensor, frames: Tensor, *rows: *Rows) -> None:
    """Implement `reference.factor_gradient`."""
    ends, layout, turned = rows
    grid, block = _make_grid(y, len(y))
    if y.numel():
        with torch.cuda.device_of(y):
            _factor_gradient[grid](
                by_factors,
                (y, x, frames),
                (ends.index, ends.span[0]),
                _find_sizes(y, by_factors, turned),
                by_factors.shape[1] == 1,
                layout,
                block,
            )


def _make_grid(y: Tensor, n: int) -> tuple[tuple[int, int], int]:
    block = min(MAX_BLOCK, triton.next_power_of_2(max(1, y.shape[2])))
    return (n, triton.cdiv(y.shape[2], block)), block


def _find_sizes(y: Tensor, factors: Tensor | None, turned: int) -> tuple[int, ...]:
    """Return sizes for the kernels.

    These are the channels, and how many of them are not turned; the strides of edges and rows of y,
    and of edges and degrees of factors.
    """
    strides = (0, 0) if factors is None else (factors.stride(0), factors.stride(1))
    by_degree = strides[1] if factors is not None and factors.shape[1] > 1 else 0
    return y.shape[2], y.shape[2] - turned, y.stride(0), y.stride(1), strides[0], by_degree


@triton.jit
def _lift(y, operands, edges, sizes, LAYOUT: tl.constexpr, BLOCK: tl.constexpr):
    x, frames, factors = operands
    index, begin = edges
    k, c = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    channels, natural, y_edge, y_row, f_edge, f_degree = sizes
    e, mask, turned = k + begin, c < channels, c >= natural
    row = e if index is None else tl.load(index + e)
    for l in tl.static_range(LAYOUT.lmax + 1):  # noqa: E741
        D = frames + e * _start(LAYOUT.lmax + 1) + _start(l)
        i = tl.arange(0, _round_up(2 * l + 1))
        total = tl.zeros((_round_up(2 * l + 1), BLOCK), y.dtype.element_ty)
        for j in range(2 * l + 1):
            column = tl.load(D + i * (2 * l + 1) + j, i < 2 * l + 1, 0.0)
            source = x + (row * LAYOUT.dim + l * l + j) * channels + c
            total += column[:, None] * tl.load(source, mask, 0.0)[None, :]
        if factors is not None:
            total *= tl.load(factors + e * f_edge + l * f_degree + c, mask, 0.0)[None, :]
        place, opposite = _find_places(i, l, 1, LAYOUT), _find_places(i, l, -1, LAYOUT)
        total = tl.where((i > l)[:, None] & turned[None, :], -total, total)
        rows = tl.where(turned[None, :], opposite[:, None], place[:, None])
        out = y + k * y_edge + rows * y_row + c[None, :]
        tl.store(out, total, (place >= 0)[:, None] & mask[None, :])


@triton.jit
def _lower(x, operands, lists, begin, sizes, LAYOUT: tl.constexpr, BLOCK: tl.constexpr):
    for l in tl.static_range(LAYOUT.lmax + 1):  # noqa: E741
        if tl.program_id(2) == l:
            _lower_degree(x, operands, lists, begin, sizes, LAYOUT, l, BLOCK)


@triton.jit
def _lower_degree(
    x,
    operands,
    lists,
    begin,
    sizes,
    LAYOUT: tl.constexpr,
    l: tl.constexpr,  # noqa: E741
    BLOCK: tl.constexpr,
):
    n, c = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    channels, natural, y_edge, y_row, f_edge, f_degree = sizes
    y, frames, factors = operands
    order, first, last = lists
    j, mask, turned = tl.arange(0, _round_up(2 * l + 1)), c < channels, c >= natural
    row = n + begin if first is None else n
    k = n + begin if first is None else tl.load(first + n)
    end = k + 1 if first is None else tl.load(last + n)
    total = tl.zeros((_round_up(2 * l + 1), BLOCK), y.dtype.element_ty)
    while k < end:
        e = k if order is None else tl.load(order + k)
        D = frames + e * _start(LAYOUT.lmax + 1) + _start(l)
        part = _turn_back(y + (e - begin) * y_edge, D, y_row, c, (mask, turned), LAYOUT, l, BLOCK)
        if factors is not None:
            part *= tl.load(factors + e * f_edge + l * f_degree + c, mask, 0.0)[None, :]
        total += part
        k += 1
    out = x + (row * LAYOUT.dim + l * l + j[:, None]) * channels + c[None, :]
    kept = (j < 2 * l + 1)[:, None] & mask[None, :]
    if first is not None:
        total += tl.load(out, kept, 0.0)
    tl.store(out, total, kept)


@triton.jit
def _factor_gradient(
    by_factors,
    operands,
    edges,
    sizes,
    ONE: tl.constexpr,
    LAYOUT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    y, x, frames = operands
    index, begin = edges
    k, c = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    channels, natural, y_edge, y_row, f_edge, f_degree = sizes
    e, mask, turned = k + begin, c < channels, c >= natural
    row = e if index is None else tl.load(index + e)
    total = tl.zeros((BLOCK,), y.dtype.element_ty)
    for l in tl.static_range(LAYOUT.lmax + 1):  # noqa: E741
        j = tl.arange(0, _round_up(2 * l + 1))
        D = frames + e * _start(LAYOUT.lmax + 1) + _start(l)
        part = _turn_back(y + k * y_edge, D, y_row, c, (mask, turned), LAYOUT, l, BLOCK)
        source = x + (row * LAYOUT.dim + l * l + j[:, None]) * channels + c[None, :]
        kept = (j < 2 * l + 1)[:, None] & mask[None, :]
        total += tl.sum(part * tl.load(source, kept, 0.0), 0)
        if not ONE:
            tl.store(by_factors + e * f_edge + l * f_degree + c, total, mask)
            total = tl.zeros((BLOCK,), y.dtype.element_ty)
    if ONE:
        tl.store(by_factors + e * f_edge + c, total, mask)


@triton.jit
def _turn_back(
    y,
    D,
    y_row,
    c,
    masks,
    LAYOUT: tl.constexpr,
    l: tl.constexpr,  # noqa: E741
    BLOCK: tl.constexpr,
):
    """Return `D^T P^T y` of one degree of an edge."""
    mask, turned = masks
    j = tl.arange(0, _round_up(2 * l + 1))
    total = tl.zeros((_round_up(2 * l + 1), BLOCK), y.dtype.element_ty)
    for i in tl.static_range(2 * l + 1):
        if _place(l, i - l, LAYOUT) >= 0:
            entries = tl.load(D + i * (2 * l + 1) + j, j < 2 * l + 1, 0.0)
            row = tl.where(turned, _place(l, l - i, LAYOUT), _place(l, i - l, LAYOUT))
            source = tl.load(y + row * y_row + c, mask, 0.0)
            if i > l:
                source = tl.where(turned, -source, source)
            total += entries[:, None] * source[None, :]
    return total


@triton.jit
def _find_places(i, l: tl.constexpr, sign: tl.constexpr, LAYOUT: tl.constexpr):  # noqa: E741
    """Return rows by order of the components of a degree, or of the opposite; -1 if not kept."""
    place = tl.zeros_like(i) - 1
    for row in tl.static_range(2 * l + 1):
        place = tl.where(i == row, _place(l, sign * (row - l), LAYOUT), place)
    return place


@triton.constexpr_function
def _place(degree, order, layout):
    """Return the row by order of a component, or -1."""
    places = layout.places
    return places.index((degree, order)) if (degree, order) in places else -1


@triton.constexpr_function
def _start(degree):
    """Return the offset of the block of a degree in a frame."""
    return degree * (4 * degree * degree - 1) // 3


@triton.constexpr_function
def _round_up(count):
    return triton.next_power_of_2(count)
