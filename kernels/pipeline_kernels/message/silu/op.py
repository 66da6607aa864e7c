"""The activation as recorded by autograd, and its second derivatives as an operator.

Nothing but these has implementations to choose between. An operator with a derivative takes longer
to call than a function of autograd: as long as the values of a thousand edges.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from pipeline_kernels.checks import REAL
from pipeline_kernels.message.silu import cpu
from pipeline_kernels.operators import define_operator


def silu(z: Tensor) -> Tensor:
    """Return `z sigmoid(z)`.

    Differentiable any number of times. Derivatives of first and second order keep `z` and the
    gradient by the results, no more; the second order is one pass over them in C, on CPUs and of
    types that it supports.

    Args:
        z: real numbers, of any shape.

    Returns:
        Of the same shape and type; as with torch, minus infinity gives NaN.
    """
    result: Tensor = _Silu.apply(z)  # type: ignore[no-untyped-call]
    return result


class _Silu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor) -> Tensor:
        ctx.save_for_backward(z)
        return functional.silu(z)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return _differentiate(g, *ctx.saved_tensors)


class _Gradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, g: Tensor, z: Tensor) -> Tensor:
        ctx.save_for_backward(g, z)
        result: Tensor = torch.ops.aten.silu_backward(g, z)
        return result

    @staticmethod
    def backward(ctx: Any, d: Tensor) -> tuple[Tensor, Tensor]:
        g, z = ctx.saved_tensors
        is_last = not torch.is_grad_enabled()  # no further derivative follows
        if is_last and z.dtype in REAL:
            return _curvature(d, g, z)
        return _differentiate(d, z), d * g * _bend(z)


def _differentiate(g: Tensor, z: Tensor) -> Tensor:
    """Return `g silu'(z)`."""
    result: Tensor = _Gradient.apply(g, z)  # type: ignore[no-untyped-call]
    return result


@define_operator(
    "silu_curvature",
    fake=lambda d, g, z: (z.new_empty(z.shape), z.new_empty(z.shape)),
    cpu=cpu.bend,
)
def _curvature(d: Tensor, g: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """Return the derivatives of `g silu'(z)` by g and z along d; they have none themselves."""
    by_g: Tensor = torch.ops.aten.silu_backward(d, z)
    return by_g, d * g * _bend(z)


def _bend(z: Tensor) -> Tensor:
    """Return `silu''(z)`."""
    s = torch.sigmoid(z)
    return s * (1 - s) * (2 + z * (1 - 2 * s))
