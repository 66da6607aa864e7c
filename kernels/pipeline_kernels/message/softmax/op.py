"""Attention over segments as `torch.library` operators: devices, shapes, derivatives, checks."""

from typing import Any

import torch
from torch import Tensor

from pipeline_kernels.message.segments import DTYPES, Segments, gather_sum, segment_sum
from pipeline_kernels.message.softmax import cpu, reference


def segment_softmax(logits: Tensor, segments: Segments) -> Tensor:
    """Normalise the exponentials of the logits in each segment.

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
    """Sum values of each segment, weighted by a softmax of their logits.

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
    return reference.softmax(logits, index, offsets.shape[0] - 1)


@_segment_softmax.register_kernel("cpu")
def _segment_softmax_cpu(logits, index, order, offsets):
    return cpu.softmax(logits, order, offsets)


@_segment_softmax.register_kernel("cuda")
def _segment_softmax_cuda(logits, index, order, offsets):
    from pipeline_kernels.message.softmax import cuda

    return cuda.softmax(logits, order, offsets)


@_segment_softmax.register_fake
def _segment_softmax_shape(logits, index, order, offsets):
    return torch.empty_like(logits, memory_format=torch.contiguous_format)


@torch.library.custom_op("pipeline_kernels::softmax_sum", mutates_args=())
def _softmax_sum(
    logits: Tensor, values: Tensor, index: Tensor, order: Tensor, offsets: Tensor
) -> tuple[Tensor, Tensor]:
    """Return sums and weights."""
    weights = reference.softmax(logits, index, offsets.shape[0] - 1)
    return reference.weighted_sum(weights, values, index, offsets.shape[0] - 1), weights


@_softmax_sum.register_kernel("cpu")
def _softmax_sum_cpu(logits, values, index, order, offsets):
    return cpu.softmax_sum(logits, values, order, offsets)


@_softmax_sum.register_kernel("cuda")
def _softmax_sum_cuda(logits, values, index, order, offsets):
    from pipeline_kernels.message.softmax import cuda

    weights = cuda.softmax(logits, order, offsets)
    return cuda.weighted_sum(weights, values, order, offsets), weights


@_softmax_sum.register_fake
def _softmax_sum_shape(logits, values, index, order, offsets):
    shape = offsets.shape[0] - 1, *values.shape[1:]
    return values.new_empty(shape), logits.new_empty(logits.shape)


@torch.library.custom_op("pipeline_kernels::softmax_sum_gradient", mutates_args=())
def _gradient(
    g: Tensor, weights: Tensor, values: Tensor, index: Tensor, order: Tensor, offsets: Tensor
) -> tuple[Tensor, Tensor]:
    """Differentiate `sum g * out` by logits and values."""
    return reference.gradient(g, weights, values, index)


@_gradient.register_kernel("cpu")
def _gradient_cpu(g, weights, values, index, order, offsets):
    return cpu.gradient(g, weights, values, order, offsets)


@_gradient.register_kernel("cuda")
def _gradient_cuda(g, weights, values, index, order, offsets):
    from pipeline_kernels.message.softmax import cuda

    return cuda.gradient(g, weights, values, index, order, offsets)


@_gradient.register_fake
def _gradient_shape(g, weights, values, index, order, offsets):
    return weights.new_empty(weights.shape), values.new_empty(values.shape)


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
