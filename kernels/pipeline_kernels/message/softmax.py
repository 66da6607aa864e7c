"""Attention over the elements of each segment: a softmax of logits, and the sum that it weights.

For head h, element e of segment s(e), and with w[r, h, c] the channels of a head side by side,

    a[e, h] = exp(z[e, h]) / sum_{e': s(e') = s(e)} exp(z[e', h]),
    out[i, r, h, c] = sum_{e: s(e) = i} a[e, h] v[e, r, h, c],

the exponent being taken from the largest logit of the segment. With g = dL/d out,

    dv[e] = a[e] g[s(e)],    da[e, h] = sum_{r c} g[s(e), r, h, c] v[e, r, h, c],
    dz[e, h] = a[e, h] (da[e, h] - sum_{e'} a[e', h] da[e', h]).
"""

from typing import Any

import numpy as np
import torch
from numba import njit, prange
from torch import Tensor

from pipeline_kernels.message.op import DTYPES, gather_sum, segment_sum
from pipeline_kernels.message.segments import Segments
from pipeline_kernels.threads import n_threads


def segment_softmax(logits: Tensor, segments: Segments) -> Tensor:
    """Normalises the exponentials of the logits in each segment.

    Differentiable any number of times.

    Args:
        logits: floating `(n_elements, n_heads)`; narrow types are calculated in float32.
        segments: the segment of each element.

    Returns:
        Weights `(n_elements, n_heads)` in float32, or float64 for logits in float64.

    Raises:
        ValueError: if logits and plan do not fit together.
    """
    _check_logits(logits, segments)
    z = logits.to(torch.promote_types(logits.dtype, torch.float32))
    lists = segments.index, segments.order, segments.offsets
    weights: Tensor = _segment_softmax(z, *lists)
    return weights


def softmax_sum(logits: Tensor, values: Tensor, segments: Segments) -> Tensor:
    """Sums values of each segment, weighted by a softmax of their logits.

    One pass over the values. Each sum has a fixed order. Differentiable once; for more, multiply by
    `segment_softmax` and take `segment_sum`.

    | symbol | argument         |
    |--------|------------------|
    | `z`    | `logits`         |
    | `v`    | `values`         |
    | `s(e)` | `segments.index` |

    Args:
        logits: floating `(n_elements, n_heads)`; narrow types are calculated in float32.
        values: floating `(n_elements, n_rows, n_heads * C)`, the channels of a head together.
        segments: the segment of each element.

    Returns:
        Sums `(n_segments, n_rows, n_heads * C)` in the type of `values`, zero for an empty segment.

    Raises:
        ValueError: if the arguments do not fit together.
    """
    _check_logits(logits, segments)
    heads = logits.shape[1]
    if (
        values.ndim != 3
        or len(values) != segments.n_elements
        or (values.shape[2] % heads if heads else values.shape[2])
    ):
        raise ValueError(
            f"values: expected ({segments.n_elements}, n_rows, a multiple of {heads} heads), "
            f"got {tuple(values.shape)}"
        )
    if values.dtype not in DTYPES or values.device != logits.device:
        raise ValueError(
            f"values: expected a dtype of {DTYPES} on {logits.device} as the logits, "
            f"got {values.dtype} on {values.device}"
        )
    dtype = torch.promote_types(torch.promote_types(logits.dtype, values.dtype), torch.float32)
    lists = segments.index, segments.order, segments.offsets
    sums: Tensor = _softmax_sum(logits.to(dtype), values.to(dtype), *lists)[0]
    return sums.to(values.dtype)


def reference_softmax(logits: Tensor, index: Tensor, n_segments: int) -> Tensor:
    """Returns `a` in plain PyTorch."""
    rows = index[:, None].expand_as(logits)
    largest = logits.new_full((n_segments, logits.shape[1]), -torch.inf)
    largest = largest.scatter_reduce(0, rows, logits.detach(), "amax")
    exponentials = (logits - largest[index]).exp()
    totals = torch.zeros_like(largest).index_add(0, index, exponentials)
    return exponentials / totals[index]


def reference_sum(weights: Tensor, values: Tensor, index: Tensor, n_segments: int) -> Tensor:
    """Returns the weighted sums in plain PyTorch."""
    n, rows, width = values.shape
    heads = weights.shape[1]
    terms = values.view(n, rows, heads, width // max(1, heads)) * weights[:, None, :, None]
    return values.new_zeros(n_segments, rows, width).index_add(0, index, terms.view_as(values))


def _check_logits(logits: Tensor, segments: Segments) -> None:
    if logits.ndim != 2 or len(logits) != segments.n_elements or logits.dtype not in DTYPES:
        raise ValueError(
            f"logits: expected ({segments.n_elements}, n_heads) of a dtype of {DTYPES}, "
            f"got {tuple(logits.shape)} of {logits.dtype}"
        )
    if logits.device != segments.index.device:
        raise ValueError(
            f"logits: expected device {segments.index.device} of the segments, got {logits.device}"
        )


@torch.library.custom_op("pipeline_kernels::segment_softmax", mutates_args=())
def _segment_softmax(logits: Tensor, index: Tensor, order: Tensor, offsets: Tensor) -> Tensor:
    return reference_softmax(logits, index, offsets.shape[0] - 1)


@_segment_softmax.register_kernel("cpu")
def _segment_softmax_cpu(logits, index, order, offsets):
    values = logits.new_empty(len(logits), 0, logits.shape[1])
    return _softmax_sum_cpu(logits, values, index, order, offsets)[1]


@_segment_softmax.register_kernel("cuda")
def _segment_softmax_cuda(logits, index, order, offsets):
    from pipeline_kernels.message import softmax_cuda

    return softmax_cuda.softmax(logits, order, offsets)


@_segment_softmax.register_fake
def _segment_softmax_shape(logits, index, order, offsets):
    return torch.empty_like(logits, memory_format=torch.contiguous_format)


@torch.library.custom_op("pipeline_kernels::softmax_sum", mutates_args=())
def _softmax_sum(
    logits: Tensor, values: Tensor, index: Tensor, order: Tensor, offsets: Tensor
) -> tuple[Tensor, Tensor]:
    """Returns sums and weights."""
    weights = reference_softmax(logits, index, offsets.shape[0] - 1)
    return reference_sum(weights, values, index, offsets.shape[0] - 1), weights


@_softmax_sum.register_kernel("cpu")
def _softmax_sum_cpu(logits, values, index, order, offsets):
    n, rows, width = len(offsets) - 1, values.shape[1], values.shape[2]
    weights = torch.empty_like(logits, memory_format=torch.contiguous_format)
    sums = values.new_zeros(n, rows, width)
    operands = logits, values, weights, sums, order, offsets
    arrays = tuple(x.detach().contiguous().numpy() for x in operands)
    _run(_sum_segments, _sum_ranges, arrays, logits.numel() + values.numel())
    return sums, weights


@_softmax_sum.register_kernel("cuda")
def _softmax_sum_cuda(logits, values, index, order, offsets):
    from pipeline_kernels.message import softmax_cuda

    weights = softmax_cuda.softmax(logits, order, offsets)
    return softmax_cuda.weighted_sum(weights, values, order, offsets), weights


@_softmax_sum.register_fake
def _softmax_sum_shape(logits, values, index, order, offsets):
    shape = offsets.shape[0] - 1, *values.shape[1:]
    return values.new_empty(shape), logits.new_empty(logits.shape)


@torch.library.custom_op("pipeline_kernels::softmax_sum_gradient", mutates_args=())
def _gradient(
    g: Tensor, weights: Tensor, values: Tensor, index: Tensor, order: Tensor, offsets: Tensor
) -> tuple[Tensor, Tensor]:
    """Differentiates `sum g * out` by logits and values."""
    picked, heads = g[index], weights.shape[1]
    by_values = picked * weights.repeat_interleave(_channels(values, heads), 1)[:, None]
    change = (picked * values).sum(1).unflatten(1, (heads, -1)).sum(2)
    totals = g.new_zeros(len(g), heads).index_add(0, index, weights * change)
    return weights * (change - totals[index]), by_values


@_gradient.register_kernel("cpu")
def _gradient_cpu(g, weights, values, index, order, offsets):
    by_values = torch.empty_like(values, memory_format=torch.contiguous_format)
    by_logits = torch.empty_like(weights, memory_format=torch.contiguous_format)
    operands = g, weights, values, by_logits, by_values, order, offsets
    arrays = tuple(x.detach().contiguous().numpy() for x in operands)
    _run(_differentiate_segments, _differentiate_ranges, arrays, 2 * values.numel())
    return by_logits, by_values


@_gradient.register_kernel("cuda")
def _gradient_cuda(g, weights, values, index, order, offsets):
    from pipeline_kernels.message import softmax_cuda

    return softmax_cuda.gradient(g, weights, values, index, order, offsets)


@_gradient.register_fake
def _gradient_shape(g, weights, values, index, order, offsets):
    return weights.new_empty(weights.shape), values.new_empty(values.shape)


def _channels(values: Tensor, heads: int) -> int:
    return values.shape[2] // max(1, heads)


def _save_softmax(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(output, *inputs[1:])


def _softmax_backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
    weights, *lists = ctx.saved_tensors
    segments, change = Segments(*lists), weights * g
    mean = gather_sum([segment_sum(change, segments)], [segments])
    return change - weights * mean, None, None, None


def _save_sum(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(output[1], *inputs[1:])


def _sum_backward(ctx: Any, g: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    by_logits, by_values = _gradient(g, *ctx.saved_tensors)
    return by_logits, by_values, None, None, None


_segment_softmax.register_autograd(_softmax_backward, setup_context=_save_softmax)
_softmax_sum.register_autograd(_sum_backward, setup_context=_save_sum)


def _run(body: Any, driver: Any, arrays: tuple[np.ndarray, ...], n_elements: int) -> None:
    offsets = arrays[-1]
    threads = n_threads(n_elements)
    if threads == 1:
        body(arrays, 0, len(offsets) - 1)
    else:
        work = offsets + np.arange(len(offsets))
        bounds = np.searchsorted(work, np.linspace(0, work[-1], threads + 1))
        driver(arrays, bounds)


@njit(cache=True, nogil=True)
def _sum_segments(arrays, begin, end):
    logits, values, weights, sums, order, offsets = arrays
    heads, rows, width = logits.shape[1], values.shape[1], values.shape[2]
    largest, total = np.empty(heads, logits.dtype), np.empty(heads, logits.dtype)
    spread, channels = np.empty(width, logits.dtype), width // max(1, heads)
    for s in range(begin, end):
        largest[:], total[:] = -np.inf, 0
        for k in range(offsets[s], offsets[s + 1]):
            e = order[k] if len(order) else k
            for h in range(heads):
                # Written so that a logit that is no number becomes the largest, and shows.
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


@njit(cache=True, nogil=True, parallel=True)
def _sum_ranges(arrays, bounds):
    for i in prange(len(bounds) - 1):
        _sum_segments(arrays, bounds[i], bounds[i + 1])


@njit(cache=True, nogil=True)
def _differentiate_segments(arrays, begin, end):
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


@njit(cache=True, nogil=True, parallel=True)
def _differentiate_ranges(arrays, bounds):
    for i in prange(len(bounds) - 1):
        _differentiate_segments(arrays, bounds[i], bounds[i + 1])
