"""Eigenangles as operators: devices, shapes, derivatives, checks."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pipeline_kernels.operators import define_derivative, define_operator
from pipeline_kernels.su3.angles import cpu, reference
from pipeline_kernels.su3.derivatives import make_backward
from pipeline_kernels.su3.matrices import check_matrices, make_like


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
    return _angles(U.reshape(-1, *U.shape[-2:])).reshape(U.shape[:-1])


def _make_angles(U: Tensor) -> Tensor:
    return U.new_empty(U.shape[:-1], dtype=torch.float64)


_angles = define_operator(
    "su3_angles",
    fake=_make_angles,
    cpu=cpu.eigenangles,
    cuda="pipeline_kernels.su3.angles.cuda:eigenangles",
)(reference.eigenangles)

_gradient = define_operator(
    "su3_angles_gradient",
    fake=make_like,
    cpu=cpu.angles_gradient,
    cuda="pipeline_kernels.su3.angles.cuda:angles_gradient",
)(reference.angles_gradient)


def _angles_backward(ctx: Any, saved: Sequence[Any], weights: Tensor) -> tuple[Tensor]:
    (U,) = saved
    return (_gradient(U, weights),)


define_derivative(_angles, _angles_backward)
define_derivative(_gradient, make_backward(reference.angles_gradient))
