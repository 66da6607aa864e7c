"""The exponential as operators: devices, shapes, derivatives, checks."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from pipeline_kernels.operators import define_derivative, define_operator
from pipeline_kernels.su3.derivatives import make_backward
from pipeline_kernels.su3.exponential import cpu, reference
from pipeline_kernels.su3.matrices import check_matrices, make_like


def exponential(A: Tensor) -> Tensor:
    """Map the algebra su(N) to the group SU(N).

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
    return _exponential(A.reshape(-1, *A.shape[-2:])).reshape(A.shape)


_exponential = define_operator(
    "su3_exponential",
    fake=make_like,
    cpu=cpu.exponential,
    cuda="pipeline_kernels.su3.exponential.cuda:exponential",
)(reference.exponential)

_gradient = define_operator(
    "su3_exponential_gradient",
    fake=make_like,
    cpu=cpu.exponential_gradient,
    cuda="pipeline_kernels.su3.exponential.cuda:exponential_gradient",
)(reference.exponential_gradient)


def _exponential_backward(ctx: Any, saved: Sequence[Any], by_U: Tensor) -> tuple[Tensor]:
    (A,) = saved
    return (_gradient(A, by_U),)


define_derivative(_exponential, _exponential_backward)
define_derivative(_gradient, make_backward(reference.exponential_gradient))
