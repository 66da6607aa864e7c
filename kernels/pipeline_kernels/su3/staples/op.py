"""Staples as operators: devices, shapes, derivatives, checks."""

import torch
from torch import Tensor

from pipeline_kernels.checks import FLOATING, check_tensor
from pipeline_kernels.su3.derivatives import define_with_gradient
from pipeline_kernels.su3.matrices import check_matrices
from pipeline_kernels.su3.staples import cpu, reference


def staple_layer(
    S: Tensor,
    coefficients: Tensor,
    forward: Tensor,
    backward: Tensor,
    mask: Tensor | None = None,
) -> Tensor:
    """Combine links and staples of several channels: a gauge-equivariant linear layer.

    Differentiable any number of times by S and coefficients. Nothing but the arguments is kept for
    the derivative, which calculates the staples again.

    | symbol | argument                                                                        |
    |--------|---------------------------------------------------------------------------------|
    | `S`    | `S`                                                                             |
    | `c`    | `coefficients`: `[:, block * K + k]`, blocks 1, R_nu.., L_nu.. of channels k    |

    Args:
        S: one matrix per link and channel, `(batch, K, D, V, N, N)`, N = 2 or 3, complex64 or
            complex128.
        coefficients: real, `(K', K * (1 + 2 * (D - 1)))`; nu != mu in increasing order.
        forward: number of the site next to each in each direction, `(D, V)`, int64.
        backward: of the site before.
        mask: links that get a result, `(D, V)`, bool; all if not given. Others get zero.

    Returns:
        Tensor `(batch, K', D, V, N, N)` of the type of S, in which all arithmetic is done.

    Raises:
        ValueError: if the arguments do not fit together.
    """
    _check(S, coefficients, forward, backward, mask)
    if mask is None:
        mask = torch.ones(forward.shape, dtype=torch.bool, device=S.device)
    return _layer(S, coefficients, forward, backward, mask)


def plaquette_staples(links: Tensor, forward: Tensor, backward: Tensor) -> Tensor:
    """Calculate the staples of each link: all R_nu, nu != mu in increasing order, then all L_nu.

    Differentiable any number of times.

    Args:
        links: `(batch, D, V, N, N)`, N = 2 or 3, complex64 or complex128.
        forward: number of the site next to each in each direction, `(D, V)`, int64.
        backward: of the site before.

    Returns:
        Tensor `(batch, 2 * (D - 1), D, V, N, N)`; the plaquettes through a link U are
        `U staple^dagger`.

    Raises:
        ValueError: if the arguments do not fit together.
    """
    n = 2 * (links.shape[1] - 1) if links.ndim == 5 else 0
    each = torch.eye(n + 1, dtype=links.real.dtype, device=links.device)[1:]
    return staple_layer(links.unsqueeze(1), each, forward, backward)


def _check(
    S: Tensor, coefficients: Tensor, forward: Tensor, backward: Tensor, mask: Tensor | None
) -> None:
    check_matrices("S", S)
    if S.ndim != 6:
        raise ValueError(f"S: expected (batch, channels, D, V, N, N), got {tuple(S.shape)}")
    n_staples = S.shape[1] * (2 * S.shape[2] - 1)
    check_tensor("coefficients", coefficients, ("n", n_staples), FLOATING, S.device)
    check_tensor("forward", forward, S.shape[2:4], (torch.int64,), S.device)
    check_tensor("backward", backward, S.shape[2:4], (torch.int64,), S.device)
    if mask is not None:
        check_tensor("mask", mask, S.shape[2:4], (torch.bool,), S.device)


def _make_layer(
    S: Tensor, coefficients: Tensor, forward: Tensor, backward: Tensor, mask: Tensor
) -> Tensor:
    return S.new_empty(S.shape[0], coefficients.shape[0], *S.shape[2:])


_layer, _gradient = define_with_gradient(
    reference.staple_layer, reference.staple_gradient, cpu=cpu, fake=_make_layer, n_inputs=2
)
