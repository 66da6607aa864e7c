"""Projection to U(N) and SU(N) as `torch.library` operators: devices, shapes, derivatives, checks.

The unitary factor U of `M = U P`, `P = (M^dagger M)^(1/2)`, is what `U V^dagger` is in a singular
value decomposition. It is calculated by Newton's iteration, whose error grows with the condition of
M and not with its square, as that of `M (M^dagger M)^(-1/2)` would; its derivative divides by sums
of singular values only, so nothing happens where they are equal.
"""

from typing import Any

import torch
from torch import Tensor

from pipeline_kernels.su3 import lanes
from pipeline_kernels.su3 import projection_reference as reference
from pipeline_kernels.su3.angles import check_matrices, differentiate


def polar(M: Tensor) -> Tensor:
    """Projects matrices to the nearest unitary ones, their polar factors.

    Differentiable any number of times. A singular matrix has no unique result, and may give NaN.

    | symbol                  | argument |
    |-------------------------|----------|
    | `M`                     | `M`      |
    | `M (M^dagger M)^(-1/2)` | result   |

    Args:
        M: matrices `(..., N, N)`, N = 2 or 3, complex64 or complex128, of magnitude 1e-40 to 1e40.

    Returns:
        Unitary matrices of the same shape and type, calculated in double precision.

    Raises:
        ValueError: if these are no such matrices by shape or type.
    """
    check_matrices("M", M)
    found: Tensor = _polar(M.reshape(-1, *M.shape[-2:]), False)
    return found.reshape(M.shape)


def project(M: Tensor) -> Tensor:
    """Projects matrices to SU(N): the polar factor over the principal Nth root of its determinant.

    The phase of the determinant is taken in (-pi, pi]; where it crosses pi the result jumps to
    another element of the centre. Otherwise as `polar`.

    Args:
        M: matrices `(..., N, N)`, N = 2 or 3, complex64 or complex128, of magnitude 1e-40 to 1e40.

    Returns:
        Special unitary matrices of the same shape and type, calculated in double precision.

    Raises:
        ValueError: if these are no such matrices by shape or type.
    """
    check_matrices("M", M)
    found: Tensor = _polar(M.reshape(-1, *M.shape[-2:]), True)
    return found.reshape(M.shape)


@torch.library.custom_op("pipeline_kernels::su3_polar", mutates_args=())
def _polar(M: Tensor, special: bool) -> Tensor:
    return reference.polar(M, special)


@_polar.register_kernel("cpu")
def _polar_cpu(M, special):
    out = M.new_empty(M.shape)
    lanes.run("projection", "polar", [M, out], special)
    return out


@_polar.register_kernel("cuda")
def _polar_cuda(M, special):
    from pipeline_kernels.su3 import projection_cuda

    return projection_cuda.polar(M, special)


@_polar.register_fake
def _polar_shape(M, special):
    return M.new_empty(M.shape)


@torch.library.custom_op("pipeline_kernels::su3_polar_gradient", mutates_args=())
def _gradient(M: Tensor, W: Tensor, G: Tensor, special: bool) -> Tensor:
    return reference.polar_gradient(M, W, G, special)


@_gradient.register_kernel("cpu")
def _gradient_cpu(M, W, G, special):
    out = M.new_empty(M.shape)
    lanes.run("projection", "polar_gradient", [M, W, G, out], special)
    return out


@_gradient.register_kernel("cuda")
def _gradient_cuda(M, W, G, special):
    from pipeline_kernels.su3 import projection_cuda

    return projection_cuda.polar_gradient(M, W, G, special)


@_gradient.register_fake
def _gradient_shape(M, W, G, special):
    return M.new_empty(M.shape)


def _save_polar(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    M, ctx.special = inputs
    ctx.save_for_backward(M, output)


def _polar_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
    return _gradient(*ctx.saved_tensors, grad, ctx.special), None


def _save_gradient(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.special = inputs
    ctx.save_for_backward(*tensors)


def _gradient_backward(ctx: Any, direction: Tensor) -> tuple[Tensor | None, ...]:
    def function(M: Tensor, W: Tensor, G: Tensor) -> Tensor:
        return reference.polar_gradient(M, W, G, ctx.special)

    return differentiate(ctx, function, (direction,))


_polar.register_autograd(_polar_backward, setup_context=_save_polar)
_gradient.register_autograd(_gradient_backward, setup_context=_save_gradient)
