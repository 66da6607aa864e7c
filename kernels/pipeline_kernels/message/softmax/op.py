"""Attention over segments as `torch.library` operators: devices, shapes, derivatives, checks."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pipeline_kernels.message.segments import DTYPES, Segments, gather_sum, segment_sum
from pipeline_kernels.message.softmax import cpu, reference
from pipeline_kernels.operators import define_derivative, define_operator


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


@define_operator(
    "segment_softmax",
    cpu=cpu.softmax,
    cuda="pipeline_kernels.message.softmax.cuda:softmax",
    fake=lambda logits, *_: logits.new_empty(logits.shape),
)
def _segment_softmax(logits: Tensor, index: Tensor, order: Tensor, offsets: Tensor) -> Tensor:
    return reference.softmax(logits, index, offsets.shape[0] - 1)


def _shape_sum(
    logits: Tensor, values: Tensor, index: Tensor, order: Tensor, offsets: Tensor
) -> tuple[Tensor, Tensor]:
    shape = offsets.shape[0] - 1, *values.shape[1:]
    return values.new_empty(shape), logits.new_empty(logits.shape)


@define_operator(
    "softmax_sum",
    cpu=cpu.softmax_sum,
    cuda="pipeline_kernels.message.softmax.cuda:softmax_sum",
    fake=_shape_sum,
)
def _softmax_sum(
    logits: Tensor, values: Tensor, index: Tensor, order: Tensor, offsets: Tensor
) -> tuple[Tensor, Tensor]:
    """Return sums and weights."""
    weights = reference.softmax(logits, index, offsets.shape[0] - 1)
    return reference.weighted_sum(weights, values, index, offsets.shape[0] - 1), weights


@define_operator(
    "softmax_sum_gradient",
    cpu=cpu.gradient,
    cuda="pipeline_kernels.message.softmax.cuda:gradient",
    fake=lambda _, weights, values, *__: (
        weights.new_empty(weights.shape),
        values.new_empty(values.shape),
    ),
)
def _gradient(
    g: Tensor, weights: Tensor, values: Tensor, index: Tensor, order: Tensor, offsets: Tensor
) -> tuple[Tensor, Tensor]:
    """Differentiate `sum g * out` by logits and values."""
    return reference.gradient(g, weights, values, index)


def _softmax_backward(ctx: Any, saved: Sequence[Any], g: Tensor) -> tuple[Tensor]:
    _, *lists, weights = saved
    segments, change = Segments(*lists), weights * g
    mean = gather_sum([segment_sum(change, segments)], [segments])
    return (change - weights * mean,)


def _sum_backward(ctx: Any, saved: Sequence[Any], g: Tensor, _: Tensor) -> tuple[Tensor, Tensor]:
    _, values, *lists, weights = saved
    return _gradient(g, weights, values, *lists)


define_derivative(_segment_softmax, _softmax_backward, drop=[0], keep_outputs=[0])
define_derivative(_softmax_sum, _sum_backward, drop=[0], keep_outputs=[1])
