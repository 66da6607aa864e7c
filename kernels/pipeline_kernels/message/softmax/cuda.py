"""The softmax of segments on NVIDIA GPUs: Triton, each result written by one program."""

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE = 1024  # elements that a program holds at once
ROWS = 16  # elements of a segment at once


def softmax(logits: Tensor, index: Tensor, order: Tensor, offsets: Tensor) -> Tensor:
    """Implement `reference.softmax`."""
    weights = torch.empty_like(logits, memory_format=torch.contiguous_format)
    if weights.numel() > 0:
        heads = logits.shape[1]
        block = triton.next_power_of_2(heads)
        with torch.cuda.device_of(logits):
            _softmax[(len(offsets) - 1,)](
                weights, logits.contiguous(), *_view_lists(order, offsets), heads, ROWS, block
            )
    return weights


def softmax_sum(
    logits: Tensor, values: Tensor, index: Tensor, order: Tensor, offsets: Tensor
) -> tuple[Tensor, Tensor]:
    """Return sums and weights."""
    weights = softmax(logits, index, order, offsets)
    return weighted_sum(weights, values, order, offsets), weights


def weighted_sum(weights: Tensor, values: Tensor, order: Tensor, offsets: Tensor) -> Tensor:
    """Implement `reference.weighted_sum`."""
    heads, (_, rows, width) = weights.shape[1], values.shape
    sums = values.new_zeros(len(offsets) - 1, rows, width)
    if sums.numel() > 0:
        block = min(TILE, triton.next_power_of_2(rows * width))
        grid = (len(sums), triton.cdiv(rows * width, block))
        operands = weights.contiguous(), values.contiguous()
        with torch.cuda.device_of(values):
            _weighted_sum[grid](
                sums, operands, _view_lists(order, offsets), rows * width, width, heads, block
            )
    return sums


def gradient(
    g: Tensor, weights: Tensor, values: Tensor, index: Tensor, order: Tensor, offsets: Tensor
) -> tuple[Tensor, Tensor]:
    """Implement `reference.gradient`."""
    heads, (n, rows, width) = weights.shape[1], values.shape
    by_weights, by_values = torch.zeros_like(weights), values.new_empty(values.shape)
    if by_values.numel() > 0:
        channels = width // heads
        block = triton.next_power_of_2(channels)
        operands = tuple(x.contiguous() for x in (g, weights, values, index))
        results = by_weights, by_values
        with torch.cuda.device_of(values):
            _differentiate_element[(n, heads)](results, operands, rows, heads, channels, block)
    by_logits = torch.empty_like(by_weights)
    if by_logits.numel() > 0:
        block, lists = triton.next_power_of_2(heads), _view_lists(order, offsets)
        with torch.cuda.device_of(values):
            _differentiate_softmax[(len(offsets) - 1,)](
                by_logits, weights.contiguous(), by_weights, *lists, heads, ROWS, block
            )
    return by_logits, by_values


def _view_lists(order: Tensor, offsets: Tensor) -> tuple[Tensor | None, Tensor]:
    return order.contiguous() if len(order) else None, offsets.contiguous()


@triton.jit
def _softmax(weights, logits, order, offsets, heads, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Two passes over the logits of one segment: the largest and the sum, then the weights."""
    s, h = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)[None, :]
    begin, end = tl.load(offsets + s), tl.load(offsets + s + 1)
    largest = tl.full((BLOCK,), float("-inf"), logits.dtype.element_ty)
    first = begin
    while first < end:
        place, mask = _list_elements(order, first, end, h, heads, ROWS)
        z = tl.load(logits + place, mask, float("-inf"))
        largest = tl.maximum(largest, tl.max(z, 0), propagate_nan=tl.PropagateNan.ALL)
        first += ROWS
    largest = tl.where(tl.arange(0, BLOCK) < heads, largest, 0.0)
    total = tl.zeros((BLOCK,), logits.dtype.element_ty)
    first = begin
    while first < end:
        place, mask = _list_elements(order, first, end, h, heads, ROWS)
        z = tl.load(logits + place, mask, float("-inf"))
        total += tl.sum(tl.exp(z - largest[None, :]), 0)
        first += ROWS
    first = begin
    while first < end:
        place, mask = _list_elements(order, first, end, h, heads, ROWS)
        z = tl.load(logits + place, mask, 0.0)
        tl.store(weights + place, tl.exp(z - largest[None, :]) / total[None, :], mask)
        first += ROWS


@triton.jit
def _differentiate_softmax(
    by_logits, weights, by_weights, order, offsets, heads, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """Derive the softmax of one segment."""
    s, h = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)[None, :]
    begin, end = tl.load(offsets + s), tl.load(offsets + s + 1)
    total = tl.zeros((BLOCK,), weights.dtype.element_ty)
    first = begin
    while first < end:
        place, mask = _list_elements(order, first, end, h, heads, ROWS)
        change = tl.load(weights + place, mask, 0.0) * tl.load(by_weights + place, mask, 0.0)
        total += tl.sum(change, 0)
        first += ROWS
    first = begin
    while first < end:
        place, mask = _list_elements(order, first, end, h, heads, ROWS)
        change = tl.load(by_weights + place, mask, 0.0) - total[None, :]
        tl.store(by_logits + place, tl.load(weights + place, mask, 0.0) * change, mask)
        first += ROWS


@triton.jit
def _list_elements(order, first, end, h, heads, ROWS: tl.constexpr):
    k = first + tl.arange(0, ROWS)
    e = k if order is None else tl.load(order + k, k < end, 0)
    return e[:, None] * heads + h, (k < end)[:, None] & (h < heads)


@triton.jit
def _weighted_sum(sums, operands, lists, size, width, heads, BLOCK: tl.constexpr):
    weights, values = operands
    order, offsets = lists
    s, f = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    head = (f % width) // (width // heads)
    total = tl.zeros((BLOCK,), values.dtype.element_ty)
    k, end = tl.load(offsets + s), tl.load(offsets + s + 1)
    while k < end:
        e = k if order is None else tl.load(order + k)
        weight = tl.load(weights + e * heads + head, f < size, 0.0)
        total += weight * tl.load(values + e * size + f, f < size, 0.0)
        k += 1
    tl.store(sums + s * size + f, total, f < size)


@triton.jit
def _differentiate_element(results, operands, rows, heads, channels, BLOCK: tl.constexpr):
    """Derive the sum by the weight and the values of one head of one element."""
    by_weights, by_values = results
    g, weights, values, index = operands
    e, h, c = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.arange(0, BLOCK)
    s, weight = tl.load(index + e), tl.load(weights + e * heads + h)
    change = tl.zeros((BLOCK,), values.dtype.element_ty)
    r = 0
    while r < rows:
        column = (r * heads + h) * channels + c
        mask, size = c < channels, rows * heads * channels
        g_row = tl.load(g + s * size + column, mask, 0.0)
        change += g_row * tl.load(values + e * size + column, mask, 0.0)
        tl.store(by_values + e * size + column, weight * g_row, mask)
        r += 1
    tl.store(by_weights + e * heads + h, tl.sum(change, 0))
