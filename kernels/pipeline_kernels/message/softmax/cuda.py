"""The softmax of segments on NVIDIA GPUs: Triton, each result written by one program."""

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS = 16  # elements of a segment at once


def softmax(logits: Tensor, index: Tensor, order: Tensor, offsets: Tensor) -> Tensor:
    """Implement `reference.softmax`."""
    weights = torch.empty_like(logits, memory_format=torch.contiguous_format)
    if weights.numel() > 0:
        heads = logits.shape[1]
        block = triton.next_power_of_2(heads)
        with torch.cuda.device_of(logits):
            _softmax[(len(offsets) - 1,)](
                weights,
                logits.contiguous(),
                order.contiguous() if len(order) else None,
                offsets.contiguous(),
                heads,
                ROWS,
                block,
            )
    return weights


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
def _list_elements(order, first, end, h, heads, ROWS: tl.constexpr):
    k = first + tl.arange(0, ROWS)
    e = k if order is None else tl.load(order + k, k < end, 0)
    return e[:, None] * heads + h, (k < end)[:, None] & (h < heads)
