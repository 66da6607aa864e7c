"""The activation of the radial network, whose second derivative takes little memory.

Forces need the derivative of the network, and their training the one of that. Autograd makes the
first of torch's `silu` of six operations whose results it keeps, more than the edges' weights.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


def silu(z: Tensor) -> Tensor:
    """Return `z sigmoid(z)`; differentiable any number of times."""
    result: Tensor = _Silu.apply(z)  # type: ignore[no-untyped-call]
    return result


class _Silu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor) -> Tensor:
        ctx.save_for_backward(z)
        return functional.silu(z)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        result: Tensor = _SiluGradient.apply(g, *ctx.saved_tensors)  # type: ignore[no-untyped-call]
        return result


class _SiluGradient(torch.autograd.Function):
    """`g silu'(z)`."""

    @staticmethod
    def forward(ctx: Any, g: Tensor, z: Tensor) -> Tensor:
        ctx.save_for_backward(g, z)
        result: Tensor = torch.ops.aten.silu_backward(g, z)
        return result

    @staticmethod
    def backward(ctx: Any, direction: Tensor) -> tuple[Tensor, Tensor]:
        g, z = ctx.saved_tensors
        by_g: Tensor = _SiluGradient.apply(direction, z)  # type: ignore[no-untyped-call]
        s = torch.sigmoid(z)
        curvature = s * (1 - s) * (2 + z * (1 - 2 * s))  # silu''(z)
        return by_g, direction * g * curvature
