"""The spectral map as `torch.library` operators: devices, shapes, derivatives, checks."""

from typing import Any

import torch
from torch import Tensor

from pipeline_kernels.su3 import lanes
from pipeline_kernels.su3 import spectral_reference as reference
from pipeline_kernels.su3.angles import check_matrices, differentiate
from pipeline_kernels.su3.splines import n_bins


def spectral_map(L: Tensor, parameters: Tensor, inverse: bool = False) -> tuple[Tensor, Tensor]:
    """Moves the eigenangles of SU(2) or SU(3) matrices by splines.

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
        inverse: whether the inverse of the map is wanted.

    Returns:
        W `(n, N, N)` of the type of L; the logarithm of the determinant of the map, inverse or not,
        on the group, `(n,)`, float64.

    Raises:
        ValueError: if the arguments do not fit together.
    """
    _check(L, parameters)
    W, log_det = _map(L, parameters, inverse)
    return W, log_det


def _check(L: Tensor, parameters: Tensor) -> None:
    check_matrices("L", L)
    if L.ndim != 3:
        raise ValueError(f"L: expected (n, N, N), got {tuple(L.shape)}; flatten what comes before")
    expected = (L.shape[0], L.shape[1] - 1)
    if parameters.ndim != 3 or parameters.shape[:2] != expected:
        raise ValueError(
            f"parameters: expected {expected} and 3 K + 1 for L of {tuple(L.shape)}, got "
            f"{tuple(parameters.shape)}"
        )
    if parameters.dtype != torch.float64 or parameters.device != L.device:
        raise ValueError(
            f"parameters: expected float64 on {L.device}, where L is, got {parameters.dtype} on "
            f"{parameters.device}"
        )
    n_bins(parameters.shape[2])


@torch.library.custom_op("pipeline_kernels::su3_spectral", mutates_args=())
def _map(L: Tensor, parameters: Tensor, inverse: bool) -> tuple[Tensor, Tensor]:
    return reference.spectral_map(L, parameters, inverse)


@_map.register_kernel("cpu")
def _map_cpu(L, parameters, inverse):
    W, log_det = L.new_empty(L.shape), parameters.new_empty(L.shape[0])
    bins = n_bins(parameters.shape[2])
    lanes.run("spectral", "spectral_map", [L, parameters, W, log_det], bins, inverse)
    return W, log_det


@_map.register_kernel("cuda")
def _map_cuda(L, parameters, inverse):
    from pipeline_kernels.su3 import spectral_cuda

    return spectral_cuda.spectral_map(L, parameters, inverse)


@_map.register_fake
def _map_shape(L, parameters, inverse):
    return L.new_empty(L.shape), parameters.new_empty(L.shape[0])


@torch.library.custom_op("pipeline_kernels::su3_spectral_gradient", mutates_args=())
def _gradient(
    L: Tensor, parameters: Tensor, by_W: Tensor, by_log_det: Tensor, inverse: bool
) -> tuple[Tensor, Tensor]:
    return reference.gradient(L, parameters, by_W, by_log_det, inverse)


@_gradient.register_kernel("cpu")
def _gradient_cpu(L, parameters, by_W, by_log_det, inverse):
    by_L, by_parameters = L.new_empty(L.shape), parameters.new_empty(parameters.shape)
    arrays = [L, parameters, by_W, by_log_det, by_L, by_parameters]
    lanes.run("spectral", "spectral_gradient", arrays, n_bins(parameters.shape[2]), inverse)
    return by_L, by_parameters


@_gradient.register_kernel("cuda")
def _gradient_cuda(L, parameters, by_W, by_log_det, inverse):
    from pipeline_kernels.su3 import spectral_cuda

    return spectral_cuda.spectral_gradient(L, parameters, by_W, by_log_det, inverse)


@_gradient.register_fake
def _gradient_shape(L, parameters, by_W, by_log_det, inverse):
    return L.new_empty(L.shape), parameters.new_empty(parameters.shape)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.inverse = inputs
    ctx.save_for_backward(*tensors)


def _map_backward(ctx: Any, by_W: Tensor, by_log_det: Tensor) -> tuple[Tensor | None, ...]:
    by_L, by_parameters = _gradient(*ctx.saved_tensors, by_W, by_log_det, ctx.inverse)
    needed = ctx.needs_input_grad
    return by_L if needed[0] else None, by_parameters if needed[1] else None, None


def _gradient_backward(ctx: Any, *directions: Tensor) -> tuple[Tensor | None, ...]:
    return differentiate(ctx, lambda *x: reference.gradient(*x, ctx.inverse), directions)


_map.register_autograd(_map_backward, setup_context=_save)
_gradient.register_autograd(_gradient_backward, setup_context=_save)
