"""Eigenangles as operators: devices, shapes, derivatives, checks."""

import torch
from torch import Tensor

from pipeline_kernels.su3.angles import reference
from pipeline_kernels.su3.derivatives import define_with_gradient
from pipeline_kernels.su3.matrices import apply_flat, check_matrices


def eigenangles(U: Tensor) -> Tensor:
    """Calculate the eigenangles of SU(2) or SU(3) matrices in the canonical cell.

    They are descending, their sum is zero and the first exceeds the last by 2 pi at most, which
    holds for one choice of the angles only. Differentiable any number of times; where angles are
    equal the derivative is one of the bounded values that it takes around.

    | symbol          | argument          |
    |-----------------|-------------------|
    | `U`             | `U`               |
    | `theta_k`       | `result[..., k]`  |

    Args:
        U: special unitary matrices, `(..., N, N)`, N = 2 or 3, complex64 or complex128.

    Returns:
        Angles in radians, `(..., N)`, float64.

    Raises:
        ValueError: if these are no such matrices by shape or type.
    """
    check_matrices("U", U)
    return apply_flat(_angles, U)


def _make_angles(U: Tensor) -> Tensor:
    return U.new_empty(U.shape[:-1], dtype=torch.float64)


_angles, _gradient = define_with_gradient(
    reference.eigenangles, reference.angles_gradient, fake=_make_angles
)
