"""The logarithm as operators: devices, shapes, derivatives, checks."""

from torch import Tensor

from pipeline_kernels.su3.derivatives import define_with_gradient
from pipeline_kernels.su3.logarithm import reference
from pipeline_kernels.su3.matrices import apply_flat, check_matrices, make_like


def logarithm(U: Tensor) -> Tensor:
    """Map the group SU(N) to the algebra su(N): the shortest A with `exponential(A) = U`.

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
    return apply_flat(_logarithm, U)


_logarithm, _gradient = define_with_gradient(
    reference.logarithm, reference.logarithm_gradient, fake=make_like, keep_result=True
)
