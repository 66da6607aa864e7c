"""Products of matrices along paths, and their derivative, in plain PyTorch."""

from functools import reduce

import torch
from torch import Tensor

from pipeline_kernels.su3.matrices import conjugate_transpose


def path_products(links: Tensor, table: Tensor, adjoint: Tensor) -> Tensor:
    """Return the products `(batch, n_places, n_paths, N, N)`."""
    return reduce(torch.matmul, _gather_factors(links, table, adjoint))


def path_gradient(links: Tensor, G: Tensor, table: Tensor, adjoint: Tensor) -> Tensor:
    """Differentiate `path_products` by links, where G is the derivative by its result.

    Itself differentiable by both, any number of times.
    """
    factors = _gather_factors(links, table, adjoint)
    by_links = torch.zeros_like(links)
    for i, backwards in enumerate(adjoint):
        g = G
        for factor in factors[:i]:
            g = conjugate_transpose(factor) @ g
        for factor in reversed(factors[i + 1 :]):
            g = g @ conjugate_transpose(factor)
        g = torch.where(backwards[:, None, None], conjugate_transpose(g), g)
        by_links = by_links.index_add(1, table[i].flatten(), g.flatten(1, 2))
    return by_links


def _gather_factors(links: Tensor, table: Tensor, adjoint: Tensor) -> list[Tensor]:
    factors = []
    for numbers, backwards in zip(table, adjoint, strict=True):
        factor = links[:, numbers]
        factors.append(torch.where(backwards[:, None, None], conjugate_transpose(factor), factor))
    return factors
