"""Message passing on NVIDIA GPUs: Triton, each tile of the output written by one program."""

import math
from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from pipeline_kernels.message.segments.plan import Plans

TILE = 1024  # elements that a program holds at once


def gather_sum(tables: Sequence[Tensor], *plans: *Plans) -> Tensor:
    """Implement `reference.gather_sum` in one pass over the output."""
    indices, _, _ = plans
    n_elements = indices[0].shape[0]
    out = tables[0].new_empty(n_elements, *tables[0].shape[1:])
    if out.numel() == 0:
        return out
    width = math.prod(out.shape[1:])
    rows, columns = _choose_tile(width)
    grid = (triton.cdiv(n_elements, rows), triton.cdiv(width, columns))
    sources = tuple(table.contiguous() for table in tables)
    picks = tuple(index.contiguous() for index in indices)
    with torch.cuda.device_of(out):
        _gather_sum[grid](
            out, sources, picks, n_elements, width, _choose_accumulator(out.dtype), rows, columns
        )
    return out


def segment_sum(values: Tensor, index: Tensor, order: Tensor, offsets: Tensor) -> Tensor:
    """Implement `reference.segment_sum` for the plan `Segments(index, order, offsets)`."""
    n_segments = offsets.shape[0] - 1
    out = values.new_empty(n_segments, *values.shape[1:])
    if out.numel() == 0:
        return out
    width = math.prod(out.shape[1:])
    rows, columns = _choose_tile(width)
    grid = (n_segments, triton.cdiv(width, columns))
    source, starts = values.contiguous(), offsets.contiguous()
    picks = order.contiguous() if order.numel() else None
    with torch.cuda.device_of(out):
        _segment_sum[grid](
            out, source, picks, starts, width, _choose_accumulator(out.dtype), rows, columns
        )
    return out


def _choose_accumulator(dtype: torch.dtype) -> tl.dtype:
    """Return the type that sums are held in: narrow types lose too much as they grow."""
    return tl.float64 if dtype == torch.float64 else tl.float32


def _choose_tile(width: int) -> tuple[int, int]:
    """Return rows and columns of a tile: whole rows of the features as far as they fit."""
    columns = min(triton.next_power_of_2(width), 128)
    return min(TILE // columns, 64), columns


@triton.jit
def _gather_sum(
    out,
    tables,
    indices,
    n_elements,
    width,
    ACCUMULATOR: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    e = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    f = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    mask = (e < n_elements)[:, None] & (f < width)
    total = tl.zeros((ROWS, COLUMNS), ACCUMULATOR)
    for t in tl.static_range(len(tables)):
        row = tl.load(indices[t] + e, e < n_elements, 0)[:, None]
        total += tl.load(tables[t] + row * width + f, mask, 0.0).to(ACCUMULATOR)
    tl.store(out + e[:, None] * width + f, total, mask)


@triton.jit
def _segment_sum(
    out,
    values,
    order,
    offsets,
    width,
    ACCUMULATOR: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    s = tl.program_id(0).to(tl.int64)
    f = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    first = tl.load(offsets + s)
    end = tl.load(offsets + s + 1)
    total = tl.zeros((ROWS, COLUMNS), ACCUMULATOR)
    while first < end:  # `range` with a loaded bound fails in the interpreter under numpy 2.4
        k = first + tl.arange(0, ROWS)
        e = k if order is None else tl.load(order + k, k < end, 0)
        mask = (k < end)[:, None] & (f < width)[None, :]
        total += tl.load(values + e[:, None] * width + f[None, :], mask, 0.0).to(ACCUMULATOR)
        first += ROWS
    tl.store(out + s * width + f, tl.sum(total, 0), f < width)
