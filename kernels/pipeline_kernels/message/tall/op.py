"""The products as operators of torch: the choice between implementations, shapes, derivatives."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pipeline_kernels.checks import REAL
from pipeline_kernels.message.tall import cpu
from pipeline_kernels.operators import define_derivative, define_operator

MIN_SIZE = 1 << 25
"""Multiplications; products with fewer gain less than it costs to call an operator."""


def multiply_tall(x: Tensor, A: Tensor) -> Tensor:
    """Return the product of a tall matrix with a small one.

    Differentiable any number of times. Sums have a fixed order, so that results are reproducible to
    the last bit, whatever the number of threads. Products that are small, on other devices than
    CPUs, of other types or under autocast torch calculates.

    Args:
        x: rows such as the features of edges, `(n, K)`.
        A: `(K, N)`, of the same type.

    Returns:
        `(n, N)`.

    Raises:
        ValueError: if the shapes do not fit together.
    """
    if x.ndim != 2 or A.ndim != 2 or x.shape[1] != A.shape[0]:
        raise ValueError(
            f"A: expected (K, N) for x of (n, K), got {tuple(A.shape)} for {tuple(x.shape)}"
        )
    kind = x.device.type
    is_plain = kind == "cpu" and x.dtype == A.dtype and x.dtype in REAL
    if not is_plain or torch.is_autocast_enabled(kind) or x.numel() * A.shape[1] < MIN_SIZE:
        return x @ A
    return _multiply(x, A)


@define_operator(
    "tall_product",
    fake=lambda x, A: x.new_empty(x.shape[0], A.shape[1]),
    cpu=cpu.multiply,
)
def _multiply(x: Tensor, A: Tensor) -> Tensor:
    return x @ A


@define_operator(
    "tall_sum",
    fake=lambda x, g: x.new_empty(x.shape[1], g.shape[1]),
    cpu=cpu.sum_products,
)
def _sum(x: Tensor, g: Tensor) -> Tensor:
    return x.T @ g


def _multiply_backward(ctx: Any, saved: Sequence[Any], g: Tensor) -> tuple[Tensor | None, ...]:
    x, A = saved
    by_x, by_A = ctx.needs_input_grad
    return _multiply(g, A.T) if by_x else None, _sum(x, g) if by_A else None


def _sum_backward(ctx: Any, saved: Sequence[Any], direction: Tensor) -> tuple[Tensor | None, ...]:
    x, g = saved
    by_x, by_g = ctx.needs_input_grad
    return (
        _multiply(g, direction.T) if by_x else None,
        _multiply(x, direction) if by_g else None,
    )


define_derivative(_multiply, _multiply_backward)
define_derivative(_sum, _sum_backward)
