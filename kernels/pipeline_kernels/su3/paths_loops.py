"""Products along paths in numba, sample by sample, where there is no compiler."""

from collections.abc import Sequence
from itertools import count

import numpy as np
from numba import njit
from torch import Tensor

from pipeline_kernels import native
from pipeline_kernels.su3.matrices_loops import adjoint, times


def path_products(arrays: Sequence[Tensor], table: Tensor, backwards: Tensor, threads: int) -> None:
    """Fills the last array as `reference.path_products` does."""
    _each(_products, arrays, table, backwards, threads)


def path_gradient(arrays: Sequence[Tensor], table: Tensor, backwards: Tensor, threads: int) -> None:
    """Fills the last array as `reference.path_gradient` does."""
    _each(_gradient, arrays, table, backwards, threads)


def _each(
    body: object, arrays: Sequence[Tensor], table: Tensor, backwards: Tensor, threads: int
) -> None:
    views, tables = [array.numpy() for array in arrays], (table.numpy(), backwards.numpy())
    numbers = count()

    def work() -> None:
        while (b := next(numbers)) < len(views[0]):
            body(*(view[b] for view in views), *tables)

    native.parallel(work, min(len(views[0]), threads))


@njit(cache=True, nogil=True)
def _factor(links, number, backwards):
    factor = links[number].astype(np.complex128)
    return adjoint(factor) if backwards else factor


@njit(cache=True, nogil=True)
def _products(links, out, table, backwards):
    length, n_places, n_paths = table.shape
    for a in range(n_places):
        for p in range(n_paths):
            product = _factor(links, table[0, a, p], backwards[0, p])
            for i in range(1, length):
                product = times(product, _factor(links, table[i, a, p], backwards[i, p]))
            out[a, p] = product


@njit(cache=True, nogil=True)
def _gradient(links, by, out, table, backwards):
    length, n_places, n_paths = table.shape
    N = links.shape[1]
    total = np.zeros(links.shape, np.complex128)
    before = np.empty((length, N, N), np.complex128)
    for a in range(n_places):
        for p in range(n_paths):
            before[0] = _factor(links, table[0, a, p], backwards[0, p])
            for i in range(1, length - 1):
                before[i] = times(before[i - 1], _factor(links, table[i, a, p], backwards[i, p]))
            g = by[a, p].astype(np.complex128)
            for i in range(length - 1, -1, -1):
                found = times(adjoint(before[i - 1]), g) if i else g
                total[table[i, a, p]] += adjoint(found) if backwards[i, p] else found
                if i:
                    g = times(g, adjoint(_factor(links, table[i, a, p], backwards[i, p])))
    out[:] = total
