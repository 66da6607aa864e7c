"""Products of matrices along paths, and their derivative, in plain PyTorch."""

from functools import reduce

import torch
from torch import Tensor


def path_products(links: Tensor, table: Tensor, adjoint: Tensor) -> Tensor:
    """Returns the products `(batch, n_places, n_paths, N, N)`."""
    return reduce(torch.matmul, _factors(links, table, adjoint))


def path_gradient(links: Tensor, G: Tensor, table: Tensor, adjoint: Tensor) -> Tensor:
    """Differentiates `path_products` by links, where G is the derivative by its result.

    Itself differentiable by both, any number of times.
    """
    factors = _factors(links, table, adjoint)
    by_links = torch.zeros_like(links)
    for i, backwards in enumerate(adjoint):
        g = G
        for factor in factors[:i]:
            g = factor.mH @ g
        for factor in reversed(factors[i + 1 :]):
            g = g @ factor.mH
        g = torch.where(backwards[:, None, None], g.mH, g)
        by_links = by_links.index_add(1, table[i].flatten(), g.flatten(1, 2))
    return by_links


def _factors(links: Tensor, table: Tensor, adjoint: Tensor) -> list[Tensor]:
    found = []
    for numbers, backwards in zip(table, adjoint, strict=True):
        factor = links[:, numbers]
        found.append(torch.where(backwards[:, None, None], factor.mH, factor))
    return found
