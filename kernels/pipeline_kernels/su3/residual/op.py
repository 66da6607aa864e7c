"""The residual step as operators: devices, shapes, derivatives, checks."""

import torch
from torch import Tensor

from pipeline_kernels.checks import check_tensor
from pipeline_kernels.su3.derivatives import define_with_gradient
from pipeline_kernels.su3.matrices import check_matrices
from pipeline_kernels.su3.residual import reference


def residual_step(
    U: Tensor, paths: Tensor, weights: Tensor, inverse: bool = False
) -> tuple[Tensor, Tensor]:
    """Move links of SU(2) or SU(3) along the gradient of a sum of loops.

    With T_a antihermitian, tr T_a^dagger T_b = delta_ab, and P X = sum_a T_a Re tr T_a^dagger X the
    part in the algebra:

        U' = exp(g) U,    g = P U Sigma^dagger,    Sigma = sum_k w_k S_k,
        log det = log det (1 + Psi M),    Psi = (1 - exp(-A)) / A,
        M_ab = Re tr T_a^dagger T_b U Sigma^dagger,    A_ab = Re tr T_a^dagger [g, T_b],

    by Haar measure: for dU = X U, dU' U'^dagger = exp(g) (X + Psi M X) exp(-g). (R. Abbott et al.,
    arXiv:2401.10874, of stout links, C. Morningstar and M. Peardon, hep-lat/0311018.) One to one,
    and meant for, weights with sum_k |w_k| |S_k| < 1, |S| the largest singular value; the inverse
    is found by Newton's iteration. If it does not converge, which only other weights can cause,
    results are NaN. Differentiable any number of times; the derivative of the inverse by U
    is along the group.

    | symbol      | argument                                                                     |
    |-------------|------------------------------------------------------------------------------|
    | `U`         | `U`, or with `inverse` `U'`                                                  |
    | `S_k`       | `paths[:, k]`                                                                |
    | `w_k`       | `weights[:, k]`                                                              |
    | `U'`        | the first result, or with `inverse` `U`                                      |
    | `log det`   | the second result, of the inverse with the other sign                        |

    Args:
        U: special unitary matrices, `(n, N, N)`, N = 2 or 3, complex64 or complex128.
        paths: matrices of the same type, `(n, K, N, N)`, K > 0.
        weights: their weights, `(n, K)`, float64.
        inverse: whether to apply the inverse of the step.

    Returns:
        Links `(n, N, N)` of the type of U, calculated in double precision; the logarithm of the
        determinant of the map, inverse or not, on the group, `(n,)`, float64.

    Raises:
        ValueError: if the arguments do not fit together.
    """
    _check(U, paths, weights)
    return _step(U, paths, weights, inverse)


def _check(U: Tensor, paths: Tensor, weights: Tensor) -> None:
    check_matrices("U", U)
    if U.ndim != 3:
        raise ValueError(f"U: expected (n, N, N), got {tuple(U.shape)}; flatten what comes before")
    n, *square = U.shape
    check_tensor("weights", weights, (n, "K"), (torch.float64,), U.device)
    if weights.shape[1] == 0:
        raise ValueError(f"weights: expected ({n}, K) with K > 0, got {tuple(weights.shape)}")
    check_tensor("paths", paths, (n, weights.shape[1], *square), (U.dtype,), U.device)


def _make_step(U: Tensor, paths: Tensor, weights: Tensor, inverse: bool) -> tuple[Tensor, Tensor]:
    return U.new_empty(U.shape), weights.new_empty(U.shape[0])


_step, _gradient = define_with_gradient(
    reference.residual_step,
    reference.residual_gradient,
    fake=_make_step,
    count=lambda U, paths, weights, *_: weights.shape[1],
    n_inputs=3,
    keep_result=True,
)
