"""Products of leaf functions: their enumeration, and their values at points.

A term is a multi-index n, one function number per coordinate; its value at a point is the product
of these functions. Functions of each coordinate are orthonormal over the training points, so
that coefficients are comparable for any domain and density of the points.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import torch
from torch import Tensor

BLOCK: Final = 4096
"""Columns that are processed at once."""


def make_orthonormal(table: Tensor, counts: Sequence[int], rows: Tensor) -> list[Tensor]:
    """Return the maps that make the functions of each leaf orthonormal over some points.

    The maps are triangular: new function m has degree m. A function that depends
    linearly on its predecessors at the points is left out.

    Args:
        table: Functions of all leaves, (n_functions, n).
        counts: Number of functions of each leaf, in rising degree.
        rows: Indices of the points to take.

    Returns:
        For each leaf (m, count), m <= count: new functions in terms of old ones.
    """
    return [_orthonormalize(part[:, rows]) for part in table.split(list(counts))]


def _orthonormalize(functions: Tensor) -> Tensor:
    """Orthonormalise by a QR factorisation, (m, count)."""
    n = functions.shape[1]
    _, R = torch.linalg.qr(functions.T / n**0.5)
    diagonal = R.diagonal().abs()
    kept = int((diagonal > 1e-7 * diagonal.max()).long().cumprod(0).sum())
    upper = R[:kept, :kept] * R.diagonal()[:kept].sign()[:, None]
    maps = functions.new_zeros(kept, functions.shape[0])
    eye = torch.eye(kept, dtype=upper.dtype)
    maps[:, :kept] = torch.linalg.solve_triangular(upper, eye, upper=True).T
    return maps


def list_terms(degrees: Sequence[Sequence[int]], largest: int) -> Tensor:
    """Return all terms whose degrees add up to at most `largest`.

    Args:
        degrees: Degree of each function of each leaf, rising.
        largest: Bound of the sum.

    Returns:
        (n_terms, d) function numbers, sorted by degree.
    """
    terms = torch.zeros(1, 0, dtype=torch.long)
    sums = torch.zeros(1, dtype=torch.long)
    for leaf in degrees:
        steps = torch.tensor(leaf)
        sums = (sums[:, None] + steps).flatten()
        numbers = torch.arange(len(steps)).repeat(len(terms))
        terms = torch.cat([terms.repeat_interleave(len(steps), 0), numbers[:, None]], 1)
        allowed = sums <= largest
        terms, sums = terms[allowed], sums[allowed]
    return terms[sums.argsort(stable=True)]


def count_terms(degrees: Sequence[Sequence[int]], largest: int) -> int:
    """Return the number of terms of `list_terms`, without listing them."""
    ways = [1, *[0] * largest]
    for leaf in degrees:
        ways = [sum(ways[s - n] for n in leaf if n <= s) for s in range(largest + 1)]
    return sum(ways)


def sum_degrees(terms: Tensor, degrees: Sequence[Sequence[int]]) -> Tensor:
    """Return the sum of degrees of each term, (n_terms,)."""
    columns = zip(terms.T, degrees, strict=True)
    return torch.stack([torch.tensor(leaf)[numbers] for numbers, leaf in columns]).sum(0)


def iterate_values(
    functions: Sequence[Tensor], terms: Tensor, rows: Tensor
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the values of terms at points, block by block of points.

    Args:
        functions: Orthonormal functions of each leaf, (m, n).
        terms: (n_terms, d).
        rows: Indices of the points.

    Yields:
        Indices of the points of the block, and values (n_block, n_terms).
    """
    for part in rows.split(BLOCK):
        yield part, compute_values(functions, terms, part).T


def compute_values(functions: Sequence[Tensor], terms: Tensor, rows: Tensor) -> Tensor:
    """Return the values of terms at points, (n_terms, n_rows)."""
    values = functions[0][:, rows][terms[:, 0]]
    for leaf, numbers in zip(functions[1:], terms.T[1:], strict=True):
        values *= leaf[:, rows][numbers]
    return values
