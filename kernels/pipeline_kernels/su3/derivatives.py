"""Derivatives of second and any higher order: those of the reference in plain PyTorch."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from pipeline_kernels.operators import differentiate_reference


def make_backward(
    reference: Callable[..., Tensor | tuple[Tensor, ...]],
) -> Callable[..., tuple[Tensor | None, ...]]:
    """Make the backward pass of an operator by automatic differentiation of its reference.

    Args:
        reference: takes tensors, then others.

    Returns:
        What `define_derivative` takes.
    """

    def backward(ctx: Any, saved: Sequence[Any], *by_results: Tensor) -> tuple[Tensor | None, ...]:
        tensors = [x for x in saved if isinstance(x, Tensor)]
        others = saved[len(tensors) :]
        return differentiate_reference(
            lambda *inputs: reference(*inputs, *others),
            tensors,
            ctx.needs_input_grad[: len(tensors)],
            by_results,
        )

    return backward
