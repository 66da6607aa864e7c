"""Products of matrices along paths as `torch.library` operators: shapes, derivatives, checks."""

from typing import Any

import torch
from torch import Tensor

from pipeline_kernels.su3 import paths_cpu
from pipeline_kernels.su3 import paths_reference as reference
from pipeline_kernels.su3.angles import check_matrices, differentiate


def path_products(links: Tensor, table: Tensor, adjoint: Tensor) -> Tensor:
    """Multiplies links along paths, some of which are passed backwards.

        result[b, a, p] = F_1 F_2 ... F_l,    F_i = links[b, table[i, a, p]], or its adjoint.

    Differentiable any number of times. Nothing but the arguments is kept for the derivative.

    | symbol | argument                                        |
    |--------|-------------------------------------------------|
    | `F_i`  | `links` and `table[i]`, adjoint: `adjoint[i]`   |

    Args:
        links: `(batch, n_links, N, N)`, N = 2 or 3, complex64 or complex128.
        table: numbers of the links on the way, `(length, n_places, n_paths)`, int64; paths with the
            last index start at many places.
        adjoint: which are passed backwards, `(length, n_paths)`, bool.

    Returns:
        Tensor `(batch, n_places, n_paths, N, N)` of the type of `links`.

    Raises:
        ValueError: if the arguments do not fit together.
    """
    _check(links, table, adjoint)
    found: Tensor = _products(links, table, adjoint)
    return found


def _check(links: Tensor, table: Tensor, adjoint: Tensor) -> None:
    check_matrices("links", links)
    if links.ndim != 4:
        raise ValueError(f"links: expected (batch, n_links, N, N), got {tuple(links.shape)}")
    if table.ndim != 3 or len(table) == 0 or table.dtype != torch.int64:
        raise ValueError(
            "table: expected int64 (length, n_places, n_paths) with a length above 0, got "
            f"{table.dtype} {tuple(table.shape)}"
        )
    expected = table.shape[0], table.shape[2]
    if adjoint.shape != expected or adjoint.dtype != torch.bool:
        raise ValueError(
            f"adjoint: expected bool {expected} for the table, got {adjoint.dtype} "
            f"{tuple(adjoint.shape)}"
        )
    for name, tensor in {"table": table, "adjoint": adjoint}.items():
        if tensor.device != links.device:
            raise ValueError(
                f"{name}: expected device {links.device} of links, got {tensor.device}"
            )


@torch.library.custom_op("pipeline_kernels::su3_paths", mutates_args=())
def _products(links: Tensor, table: Tensor, adjoint: Tensor) -> Tensor:
    return reference.path_products(links, table, adjoint)


@_products.register_kernel("cpu")
def _products_cpu(links, table, adjoint):
    return paths_cpu.path_products(links, table, adjoint)


@_products.register_kernel("cuda")
def _products_cuda(links, table, adjoint):
    from pipeline_kernels.su3 import paths_cuda

    return paths_cuda.path_products(links, table, adjoint)


@_products.register_fake
def _products_shape(links, table, adjoint):
    return links.new_empty(links.shape[0], *table.shape[1:], *links.shape[2:])


@torch.library.custom_op("pipeline_kernels::su3_paths_gradient", mutates_args=())
def _gradient(links: Tensor, G: Tensor, table: Tensor, adjoint: Tensor) -> Tensor:
    return reference.path_gradient(links, G, table, adjoint)


@_gradient.register_kernel("cpu")
def _gradient_cpu(links, G, table, adjoint):
    return paths_cpu.path_gradient(links, G, table, adjoint)


@_gradient.register_kernel("cuda")
def _gradient_cuda(links, G, table, adjoint):
    from pipeline_kernels.su3 import paths_cuda

    return paths_cuda.path_gradient(links, G, table, adjoint)


@_gradient.register_fake
def _gradient_shape(links, G, table, adjoint):
    return links.new_empty(links.shape)


def _save(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _products_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    links, table, adjoint = ctx.saved_tensors
    return _gradient(links, grad, table, adjoint), None, None


def _gradient_backward(ctx: Any, direction: Tensor) -> tuple[Tensor | None, ...]:
    return differentiate(ctx, reference.path_gradient, (direction,))


_products.register_autograd(_products_backward, setup_context=_save)
_gradient.register_autograd(_gradient_backward, setup_context=_save)
