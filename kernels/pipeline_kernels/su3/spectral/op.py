"""The spectral map as operators: devices, shapes, derivatives, checks."""

import torch
from torch import Tensor

from pipeline_kernels.checks import check_tensor
from pipeline_kernels.su3.derivatives import define_with_gradient
from pipeline_kernels.su3.matrices import check_matrices
from pipeline_kernels.su3.spectral import reference
from pipeline_kernels.su3.splines import count_bins


def spectral_map(L: Tensor, parameters: Tensor, inverse: bool = False) -> tuple[Tensor, Tensor]:
    """Move the eigenangles of SU(2) or SU(3) matrices by splines.

    Angles theta in the canonical cell have gaps a = theta_1 - theta_2, b = theta_2 - theta_3 and
    c = 2 pi - a - b. Splines F_1, F_2 move the box coordinates s = (a + b) / 2 pi, r = a / (a + b);
    of SU(2) the one coordinate is theta_1 / pi. The eigenvectors stay:

        L' = W L,    W = sum_k exp(i (theta'_k - theta_k)) P_k,
        log det = log F_1'(s) + log F_2'(r) + log s' / s
                  + 2 sum_{i<j} log sin((theta'_i - theta'_j) / 2) / sin((theta_i - theta_j) / 2)

    by Haar measure, hence equivariant under conjugation. With zero parameters W is exactly one and
    the determinant exactly zero. Differentiable any number of times. (D. Boyda et al.,
    arXiv:2008.05456, section III; Durkan et al., arXiv:1906.04032.)

    | symbol      | argument                                                                     |
    |-------------|------------------------------------------------------------------------------|
    | `L`         | `L`                                                                          |
    | `F_i`       | `parameters[:, i - 1]`, see `splines`                                        |
    | `W`         | the first result                                                             |
    | `log det`   | the second result                                                            |

    Args:
        L: special unitary matrices, `(n, N, N)`, N = 2 or 3, complex64 or complex128.
        parameters: K widths and K heights, of which softmax makes bins, and K + 1 slopes, of which
            softplus makes slopes, of N - 1 splines, `(n, N - 1, 3 K + 1)`, float64.
        inverse: whether to apply the inverse of the map.

    Returns:
        W `(n, N, N)` of the type of L; the logarithm of the determinant of the map, inverse or not,
        on the group, `(n,)`, float64.

    Raises:
        ValueError: if the arguments do not fit together.
    """
    _check(L, parameters)
    return _map(L, parameters, inverse)


def _check(L: Tensor, parameters: Tensor) -> None:
    check_matrices("L", L)
    if L.ndim != 3:
        raise ValueError(f"L: expected (n, N, N), got {tuple(L.shape)}; flatten what comes before")
    shape = L.shape[0], L.shape[1] - 1, "3 K + 1"
    check_tensor("parameters", parameters, shape, (torch.float64,), L.device)
    count_bins(parameters.shape[2])


def _make_map(L: Tensor, parameters: Tensor, inverse: bool) -> tuple[Tensor, Tensor]:
    return L.new_empty(L.shape), parameters.new_empty(L.shape[0])


_map, _gradient = define_with_gradient(
    reference.spectral_map,
    reference.spectral_gradient,
    fake=_make_map,
    count=lambda L, parameters, *_: count_bins(parameters.shape[2]),
    n_inputs=2,
)
