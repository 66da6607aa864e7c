"""Projection to SU(N) as operators: devices, shapes, derivatives, checks."""

from torch import Tensor

from pipeline_kernels.su3.derivatives import define_with_gradient
from pipeline_kernels.su3.matrices import apply_flat, check_matrices, make_like
from pipeline_kernels.su3.projection import reference


def project(M: Tensor) -> Tensor:
    """Project matrices to SU(N): the polar factor over the principal Nth root of its determinant.

    The phase of the determinant is taken in (-pi, pi]; where it crosses pi the result jumps to
    another element of the centre. Differentiable any number of times. A singular matrix has no
    unique result, and may give NaN.

    Args:
        M: matrices `(..., N, N)`, N = 2 or 3, complex64 or complex128, of magnitude 1e-40 to 1e40.

    Returns:
        Special unitary matrices of the same shape and type, calculated in double precision.

    Raises:
        ValueError: if these are no such matrices by shape or type.
    """
    check_matrices("M", M)
    return apply_flat(_project, M)


_project, _gradient = define_with_gradient(
    reference.project, reference.project_gradient, fake=make_like, keep_result=True
)
