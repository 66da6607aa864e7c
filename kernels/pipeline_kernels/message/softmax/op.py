"""The softmax of segments as an operator: devices, shapes, derivative, checks."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pipeline_kernels.checks import FLOATING, check_tensor
from pipeline_kernels.message.segments import Segments, gather_sum, segment_sum
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
    shape = segments.n_elements, "n_heads"
    check_tensor("logits", logits, shape, FLOATING, segments.index.device)
    z = logits.to(torch.promote_types(logits.dtype, torch.float32))
    lists = segments.index, segments.order, segments.offsets
    weights: Tensor = _segment_softmax(z, *lists)
    return weights


@define_operator(
    "segment_softmax",
    cpu=cpu.softmax,
    cuda="pipeline_kernels.message.softmax.cuda:softmax",
    fake=lambda logits, *_: logits.new_empty(logits.shape),
)
def _segment_softmax(logits: Tensor, index: Tensor, order: Tensor, offsets: Tensor) -> Tensor:
    return reference.softmax(logits, index, offsets.shape[0] - 1)


def _softmax_backward(ctx: Any, saved: Sequence[Any], g: Tensor) -> tuple[Tensor]:
    _, *lists, weights = saved
    segments, change = Segments(*lists), weights * g
    mean = gather_sum([segment_sum(change, segments)], [segments])
    return (change - weights * mean,)


define_derivative(_segment_softmax, _softmax_backward, drop=[0], keep_outputs=[0])
