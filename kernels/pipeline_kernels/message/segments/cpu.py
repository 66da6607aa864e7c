"""Message passing on the CPU: numba, each row of the output written by one thread."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from numba import njit, prange
from torch import Tensor

from pipeline_kernels.threads import choose_threads

Arrays = tuple[np.ndarray, ...]
NATIVE = (torch.float32, torch.float64)  # narrower types are summed in float32


def gather_sum(
    tables: Sequence[Tensor],
    indices: Sequence[Tensor],
    orders: Sequence[Tensor],
    offsets: Sequence[Tensor],
) -> Tensor:
    """Implement `reference.gather_sum` in one pass over the output."""
    dtype = tables[0].dtype
    if dtype not in NATIVE:
        wide = [table.float() for table in tables]
        return gather_sum(wide, indices, orders, offsets).to(dtype)
    n_elements = indices[0].shape[0]
    out = tables[0].new_empty(n_elements, *tables[0].shape[1:])
    rows = _view_matrix(out)
    sources = tuple(_view_matrix(table) for table in tables)
    picks = tuple(index.contiguous().numpy() for index in indices)
    threads = choose_threads(rows.size)
    if threads == 1:
        _gather_rows(sources, picks, rows, 0, n_elements)
    else:
        bounds = np.linspace(0, n_elements, threads + 1).astype(np.int64)
        _gather_ranges(sources, picks, rows, bounds)
    return out


def segment_sum(values: Tensor, index: Tensor, order: Tensor, offsets: Tensor) -> Tensor:
    """Implement `reference.segment_sum` for the plan `Segments(index, order, offsets)`."""
    if values.dtype not in NATIVE:
        return segment_sum(values.float(), index, order, offsets).to(values.dtype)
    n_segments = offsets.shape[0] - 1
    out = values.new_empty(n_segments, *values.shape[1:])
    sums, rows = _view_matrix(out), _view_matrix(values)
    elements, starts = order.contiguous().numpy(), offsets.contiguous().numpy()
    threads = choose_threads(rows.size + sums.size)
    if threads == 1:
        _sum_segments(rows, elements, starts, sums, 0, n_segments)
    else:
        _sum_ranges(rows, elements, starts, sums, _split_work(starts, threads))
    return out


def _view_matrix(tensor: Tensor) -> np.ndarray:
    """View a tensor as `(rows, all features)`; copies only what is not contiguous."""
    rows = tensor.detach().numpy()
    if tensor.ndim != 2:
        rows = rows.reshape(tensor.shape[0], math.prod(tensor.shape[1:]))
    return np.ascontiguousarray(rows)


def _split_work(offsets: np.ndarray, n_ranges: int) -> np.ndarray:
    """Cut the segments into ranges of about equally many rows read and written."""
    work = offsets + np.arange(len(offsets))
    return np.searchsorted(work, np.linspace(0, work[-1], n_ranges + 1))


@njit(cache=True, nogil=True)
def _gather_rows(tables: Arrays, indices: Arrays, out: np.ndarray, begin: int, end: int) -> None:
    width = out.shape[1]
    for e in range(begin, end):
        table, row = tables[0], indices[0][e]
        for f in range(width):
            out[e, f] = table[row, f]
        # A later table finds the row of `out` still in the first-level cache.
        for t in range(1, len(tables)):
            table, row = tables[t], indices[t][e]
            for f in range(width):
                out[e, f] += table[row, f]


@njit(cache=True, nogil=True, parallel=True)
def _gather_ranges(tables: Arrays, indices: Arrays, out: np.ndarray, bounds: np.ndarray) -> None:
    for r in prange(len(bounds) - 1):
        _gather_rows(tables, indices, out, bounds[r], bounds[r + 1])


@njit(cache=True, nogil=True)
def _sum_segments(
    values: np.ndarray,
    order: np.ndarray,
    offsets: np.ndarray,
    out: np.ndarray,
    begin: int,
    end: int,
) -> None:
    width = out.shape[1]
    for s in range(begin, end):
        for f in range(width):
            out[s, f] = 0
        for k in range(offsets[s], offsets[s + 1]):
            e = order[k] if len(order) else k
            for f in range(width):
                out[s, f] += values[e, f]


@njit(cache=True, nogil=True, parallel=True)
def _sum_ranges(
    values: np.ndarray, order: np.ndarray, offsets: np.ndarray, out: np.ndarray, bounds: np.ndarray
) -> None:
    for r in prange(len(bounds) - 1):
        _sum_segments(values, order, offsets, out, bounds[r], bounds[r + 1])
