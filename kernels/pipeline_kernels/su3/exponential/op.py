"""The exponential as operators: devices, shapes, derivatives, checks."""

from torch import Tensor

from pipeline_kernels.su3.derivatives import define_with_gradient
from pipeline_kernels.su3.exponential import reference
from pipeline_kernels.su3.matrices import apply_flat, check_matrices, make_like


def exponential(A: Tensor) -> Tensor:
    """Map the algebra su(N) to the group SU(N).

    Any other part than the traceless antihermitian one is ignored, so that roundings do not
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
    return apply_flat(_exponential, A)


_exponential, _gradient = define_with_gradient(
    reference.exponential, reference.exponential_gradient, fake=make_like
)
