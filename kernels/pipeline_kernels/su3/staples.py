"""Staples as `torch.library` operators: devices, shapes, derivatives, checks.

With U_mu(x) the link from x to x + mu, all paths of three links around it that share its ends are

    R_mu,nu(x) = S_nu(x) S_mu(x+nu) S_nu(x+mu)^dagger,
    L_mu,nu(x) = S_nu(x-nu)^dagger S_mu(x-nu) S_nu(x-nu+mu).

They transform as U_mu(x) does, so that links, R and L of several fields S may be added up.
"""

from typing import Any

import torch
from torch import Tensor

from pipeline_kernels.su3 import staples_cpu
from pipeline_kernels.su3 import staples_reference as reference
from pipeline_kernels.su3.angles import check_matrices, differentiate


def staple_layer(
    S: Tensor,
    coefficients: Tensor,
    forward: Tensor,
    backward: Tensor,
    mask: Tensor | None = None,
) -> Tensor:
    """Combines links and staples of several channels: a gauge-equivariant linear layer.

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
    found: Tensor = _layer(S, coefficients, forward, backward, mask)
    return found


def plaquette_staples(links: Tensor, forward: Tensor, backward: Tensor) -> Tensor:
    """Calculates the staples of each link: all R_nu, nu != mu in increasing order, then all L_nu.

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
    chosen = torch.eye(n + 1, dtype=links.real.dtype, device=links.device)[1:]
    return staple_layer(links.unsqueeze(1), chosen, forward, backward)


def _check(
    S: Tensor, coefficients: Tensor, forward: Tensor, backward: Tensor, mask: Tensor | None
) -> None:
    check_matrices("S", S)
    if S.ndim != 6:
        raise ValueError(f"S: expected (batch, channels, D, V, N, N), got {tuple(S.shape)}")
    n_staples = S.shape[1] * (2 * S.shape[2] - 1)
    if coefficients.is_complex() or coefficients.shape[1:] != (n_staples,):
        raise ValueError(
            f"coefficients: expected real numbers (n, {n_staples}) for S {tuple(S.shape)}, got "
            f"{coefficients.dtype} {tuple(coefficients.shape)}"
        )
    tables = {"forward": (forward, torch.int64), "backward": (backward, torch.int64)}
    if mask is not None:
        tables["mask"] = (mask, torch.bool)
    for name, (table, dtype) in tables.items():
        if table.shape != S.shape[2:4] or table.dtype != dtype:
            raise ValueError(
                f"{name}: expected {dtype} {tuple(S.shape[2:4])} for S {tuple(S.shape)}, got "
                f"{table.dtype} {tuple(table.shape)}"
            )
        if table.device != S.device:
            raise ValueError(f"{name}: expected device {S.device} of S, got {table.device}")
    if coefficients.device != S.device:
        raise ValueError(
            f"coefficients: expected device {S.device} of S, got {coefficients.device}"
        )


@torch.library.custom_op("pipeline_kernels::su3_staples", mutates_args=())
def _layer(
    S: Tensor, coefficients: Tensor, forward: Tensor, backward: Tensor, mask: Tensor
) -> Tensor:
    return reference.staple_layer(S, coefficients, forward, backward, mask)


@_layer.register_kernel("cpu")
def _layer_cpu(S, coefficients, forward, backward, mask):
    return staples_cpu.staple_layer(S, coefficients, forward, backward, mask)


@_layer.register_kernel("cuda")
def _layer_cuda(S, coefficients, forward, backward, mask):
    from pipeline_kernels.su3 import staples_cuda

    return staples_cuda.staple_layer(S, coefficients, forward, backward, mask)


@_layer.register_fake
def _layer_shape(S, coefficients, forward, backward, mask):
    return S.new_empty(S.shape[0], coefficients.shape[0], *S.shape[2:])


@torch.library.custom_op("pipeline_kernels::su3_staples_gradient", mutates_args=())
def _gradient(
    S: Tensor, coefficients: Tensor, G: Tensor, forward: Tensor, backward: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor]:
    return reference.staple_gradient(S, coefficients, G, forward, backward, mask)


@_gradient.register_kernel("cpu")
def _gradient_cpu(S, coefficients, G, forward, backward, mask):
    return staples_cpu.staple_gradient(S, coefficients, G, forward, backward, mask)


@_gradient.register_kernel("cuda")
def _gradient_cuda(S, coefficients, G, forward, backward, mask):
    from pipeline_kernels.su3 import staples_cuda

    return staples_cuda.staple_gradient(S, coefficients, G, forward, backward, mask)


@_gradient.register_fake
def _gradient_shape(S, coefficients, G, forward, backward, mask):
    return S.new_empty(S.shape), coefficients.new_empty(coefficients.shape)


def _save_layer(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _layer_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    S, coefficients, *tables = ctx.saved_tensors
    by_S, by_coefficients = _gradient(S, coefficients, grad, *tables)
    needed = ctx.needs_input_grad
    return by_S if needed[0] else None, by_coefficients if needed[1] else None, None, None, None


def _save_gradient(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs)


def _gradient_backward(ctx: Any, d_S: Tensor, d_coefficients: Tensor) -> tuple[Tensor | None, ...]:
    return differentiate(ctx, reference.staple_gradient, (d_S, d_coefficients))


_layer.register_autograd(_layer_backward, setup_context=_save_layer)
_gradient.register_autograd(_gradient_backward, setup_context=_save_gradient)
