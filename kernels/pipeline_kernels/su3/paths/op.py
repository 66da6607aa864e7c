"""Products of matrices along paths as operators: devices, shapes, derivatives, checks."""

import torch
from torch import Tensor

from pipeline_kernels.checks import check_tensor
from pipeline_kernels.su3.derivatives import define_with_gradient
from pipeline_kernels.su3.matrices import check_matrices
from pipeline_kernels.su3.paths import cpu, reference


def path_products(links: Tensor, table: Tensor, adjoint: Tensor) -> Tensor:
    """Multiply links along paths, some of which are passed backwards.

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
    return _products(links, table, adjoint)


def _check(links: Tensor, table: Tensor, adjoint: Tensor) -> None:
    check_matrices("links", links)
    if links.ndim != 4:
        raise ValueError(f"links: expected (batch, n_links, N, N), got {tuple(links.shape)}")
    sizes = "length", "n_places", "n_paths"
    check_tensor("table", table, sizes, (torch.int64,), links.device)
    if len(table) == 0:
        raise ValueError(f"table: expected a length above 0, got {tuple(table.shape)}")
    shape = table.shape[0], table.shape[2]
    check_tensor("adjoint", adjoint, shape, (torch.bool,), links.device)


def _make_products(links: Tensor, table: Tensor, adjoint: Tensor) -> Tensor:
    return links.new_empty(links.shape[0], *table.shape[1:], *links.shape[2:])


_products, _gradient = define_with_gradient(
    reference.path_products, reference.path_gradient, cpu=cpu, fake=_make_products
)
