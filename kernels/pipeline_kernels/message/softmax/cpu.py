"""Attention over segments on the CPU: numba, each segment treated by one thread."""

from typing import Any

import numpy as np
import torch
from numba import prange
from torch import Tensor

from pipeline_kernels.jit import njit
from pipeline_kernels.threads import choose_threads

Arrays = tuple[np.ndarray, ...]


def softmax(logits: Tensor, index: Tensor, order: Tensor, offsets: Tensor) -> Tensor:
    """Implement `reference.softmax`."""
    values = logits.new_empty(len(logits), 0, logits.shape[1])
    return softmax_sum(logits, values, index, order, offsets)[1]


def softmax_sum(
    logits: Tensor, values: Tensor, index: Tensor, order: Tensor, offsets: Tensor
) -> tuple[Tensor, Tensor]:
    """Implement `reference.weighted_sum` and `reference.softmax` in one pass over the values."""
    n, rows, width = len(offsets) - 1, values.shape[1], values.shape[2]
    weights = torch.empty_like(logits, memory_format=torch.contiguous_format)
    sums = values.new_zeros(n, rows, width)
    operands = logits, values, weights, sums, order, offsets
    _run(_sum_segments, _sum_ranges, operands, logits.numel() + values.numel())
    return sums, weights


def gradient(
    g: Tensor, weights: Tensor, values: Tensor, index: Tensor, order: Tensor, offsets: Tensor
) -> tuple[Tensor, Tensor]:
    """Implement `reference.gradient`."""
    by_values = torch.empty_like(values, memory_format=torch.contiguous_format)
    by_logits = torch.empty_like(weights, memory_format=torch.contiguous_format)
    operands = g, weights, values, by_logits, by_values, order, offsets
    _run(_differentiate_segments, _differentiate_ranges, operands, 2 * values.numel())
    return by_logits, by_values


def _run(body: Any, driver: Any, operands: tuple[Tensor, ...], n_elements: int) -> None:
    arrays = tuple(x.detach().contiguous().numpy() for x in operands)
    offsets, threads = arrays[-1], choose_threads(n_elements)
    if threads == 1:
        body(arrays, 0, len(offsets) - 1)
    else:
        work = offsets + np.arange(len(offsets))
        bounds = np.searchsorted(work, np.linspace(0, work[-1], threads + 1))
        driver(arrays, bounds)


@njit(nogil=True)
def _sum_segments(arrays: Arrays, begin: int, end: int) -> None:
    logits, values, weights, sums, order, offsets = arrays
    heads, rows, width = logits.shape[1], values.shape[1], values.shape[2]
    largest, total = np.empty(heads, logits.dtype), np.empty(heads, logits.dtype)
    spread, channels = np.empty(width, logits.dtype), width // max(1, heads)
    for s in range(begin, end):
        largest[:], total[:] = -np.inf, 0
        for k in range(offsets[s], offsets[s + 1]):
            e = order[k] if len(order) else k
            for h in range(heads):
                # Written so that a logit of NaN becomes the largest, and shows.
                largest[h] = largest[h] if largest[h] >= logits[e, h] else logits[e, h]
        for k in range(offsets[s], offsets[s + 1]):
            e = order[k] if len(order) else k
            for h in range(heads):
                weights[e, h] = np.exp(logits[e, h] - largest[h])
                total[h] += weights[e, h]
        for k in range(offsets[s], offsets[s + 1]):
            e = order[k] if len(order) else k
            for h in range(heads):
                weights[e, h] /= total[h]
                spread[h * channels : (h + 1) * channels] = weights[e, h]
            for r in range(rows):
                for c in range(width):
                    sums[s, r, c] += spread[c] * values[e, r, c]


@njit(nogil=True, parallel=True)
def _sum_ranges(arrays: Arrays, bounds: np.ndarray) -> None:
    for i in prange(len(bounds) - 1):
        _sum_segments(arrays, bounds[i], bounds[i + 1])


@njit(nogil=True)
def _differentiate_segments(arrays: Arrays, begin: int, end: int) -> None:
    g, weights, values, by_logits, by_values, order, offsets = arrays
    heads, rows, width = weights.shape[1], values.shape[1], values.shape[2]
    total, channels = np.empty(heads, weights.dtype), width // max(1, heads)
    spread, change = np.empty(width, weights.dtype), np.empty(width, weights.dtype)
    for s in range(begin, end):
        total[:] = 0
        for k in range(offsets[s], offsets[s + 1]):
            e = order[k] if len(order) else k
            for h in range(heads):
                spread[h * channels : (h + 1) * channels] = weights[e, h]
            change[:] = 0
            for r in range(rows):
                for c in range(width):
                    by_values[e, r, c] = spread[c] * g[s, r, c]
                    change[c] += g[s, r, c] * values[e, r, c]
            for h in range(heads):
                by_logits[e, h] = 0
                for c in range(h * channels, (h + 1) * channels):
                    by_logits[e, h] += change[c]
                total[h] += weights[e, h] * by_logits[e, h]
        for k in range(offsets[s], offsets[s + 1]):
            e = order[k] if len(order) else k
            for h in range(heads):
                by_logits[e, h] = weights[e, h] * (by_logits[e, h] - total[h])


@njit(nogil=True, parallel=True)
def _differentiate_ranges(arrays: Arrays, bounds: np.ndarray) -> None:
    for i in prange(len(bounds) - 1):
        _differentiate_segments(arrays, bounds[i], bounds[i + 1])
