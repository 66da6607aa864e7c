"""Exponential and logarithm as `torch.library` operators: devices, shapes, derivatives, checks."""

from typing import Any

import torch
from torch import Tensor

from pipeline_kernels.su3 import exponential_reference as reference
from pipeline_kernels.su3 import lanes
from pipeline_kernels.su3.angles import check_matrices, differentiate


def exponential(A: Tensor) -> Tensor:
    """Maps the algebra su(N) to the group SU(N).

    What a matrix has beside its traceless antihermitian part is ignored, so that roundings do not
    lead out of the group; the derivative by A is in the algebra too. Differentiable any number of
    times.

    Args:
        A: matrices `(..., N, N)`, N = 2 or 3, complex64 or complex128.

    Returns:
        Special unitary matrices of the same shape and type, calculated in double precision.

    Raises:
        ValueError: if these are no such matrices by shape or type.
    """
    check_matrices("A", A)
    found: Tensor = _exponential(A.reshape(-1, *A.shape[-2:]))
    return found.reshape(A.shape)


def logarithm(U: Tensor) -> Tensor:
    """Maps the group SU(N) to the algebra su(N): the shortest A with `exponential(A) = U`.

    Eigenvalues of `-i A` are the angles of `eigenangles`. Differentiable any number of times, along
    the group: its derivative by U is tangent to it. There are many shortest A where the first angle
    exceeds the last by 2 pi, as at -1 of SU(2) and at the centre of SU(3) other than 1; the result
    there is finite but need not be one of them.

    Args:
        U: special unitary matrices `(..., N, N)`, N = 2 or 3, complex64 or complex128.

    Returns:
        Traceless antihermitian matrices of the same shape and type, calculated in double precision.

    Raises:
        ValueError: if these are no such matrices by shape or type.
    """
    check_matrices("U", U)
    found: Tensor = _logarithm(U.reshape(-1, *U.shape[-2:]))
    return found.reshape(U.shape)


@torch.library.custom_op("pipeline_kernels::su3_exponential", mutates_args=())
def _exponential(A: Tensor) -> Tensor:
    return reference.exponential(A)


@_exponential.register_kernel("cpu")
def _exponential_cpu(A):
    out = A.new_empty(A.shape)
    lanes.run("exponential", "exponential", [A, out])
    return out


@_exponential.register_kernel("cuda")
def _exponential_cuda(A):
    from pipeline_kernels.su3 import exponential_cuda

    return exponential_cuda.exponential(A)


@torch.library.custom_op("pipeline_kernels::su3_exponential_gradient", mutates_args=())
def _exponential_gradient(A: Tensor, G: Tensor) -> Tensor:
    return reference.exponential_gradient(A, G)


@_exponential_gradient.register_kernel("cpu")
def _exponential_gradient_cpu(A, G):
    out = A.new_empty(A.shape)
    lanes.run("exponential", "exponential_gradient", [A, G, out])
    return out


@_exponential_gradient.register_kernel("cuda")
def _exponential_gradient_cuda(A, G):
    from pipeline_kernels.su3 import exponential_cuda

    return exponential_cuda.exponential_gradient(A, G)


@torch.library.custom_op("pipeline_kernels::su3_logarithm", mutates_args=())
def _logarithm(U: Tensor) -> Tensor:
    return reference.logarithm(U)


@_logarithm.register_kernel("cpu")
def _logarithm_cpu(U):
    out = U.new_empty(U.shape)
    lanes.run("exponential", "logarithm", [U, out])
    return out


@_logarithm.register_kernel("cuda")
def _logarithm_cuda(U):
    from pipeline_kernels.su3 import logarithm_cuda

    return logarithm_cuda.logarithm(U)


@torch.library.custom_op("pipeline_kernels::su3_logarithm_gradient", mutates_args=())
def _logarithm_gradient(A: Tensor, U: Tensor, G: Tensor) -> Tensor:
    return reference.logarithm_gradient(A, U, G)


@_logarithm_gradient.register_kernel("cpu")
def _logarithm_gradient_cpu(A, U, G):
    out = U.new_empty(U.shape)
    lanes.run("exponential", "logarithm_gradient", [A, U, G, out])
    return out


@_logarithm_gradient.register_kernel("cuda")
def _logarithm_gradient_cuda(A, U, G):
    from pipeline_kernels.su3 import logarithm_cuda

    return logarithm_cuda.logarithm_gradient(A, U, G)


@_exponential.register_fake
@_exponential_gradient.register_fake
@_logarithm.register_fake
@_logarithm_gradient.register_fake
def _shape(first, *others):
    return first.new_empty(first.shape)


def _save_inputs(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _save_logarithm(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
    ctx.save_for_backward(output, *inputs)


def _exponential_backward(ctx: Any, grad: Tensor) -> Tensor:
    found: Tensor = _exponential_gradient(*ctx.saved_tensors, grad)
    return found


def _logarithm_backward(ctx: Any, grad: Tensor) -> Tensor:
    found: Tensor = _logarithm_gradient(*ctx.saved_tensors, grad)
    return found


def _exponential_gradient_backward(ctx: Any, direction: Tensor) -> tuple[Tensor | None, ...]:
    return differentiate(ctx, reference.exponential_gradient, (direction,))


def _logarithm_gradient_backward(ctx: Any, direction: Tensor) -> tuple[Tensor | None, ...]:
    return differentiate(ctx, reference.logarithm_gradient, (direction,))


_exponential.register_autograd(_exponential_backward, setup_context=_save_inputs)
_exponential_gradient.register_autograd(_exponential_gradient_backward, setup_context=_save_inputs)
_logarithm.register_autograd(_logarithm_backward, setup_context=_save_logarithm)
_logarithm_gradient.register_autograd(_logarithm_gradient_backward, setup_context=_save_inputs)
