"""Layers of staples in numba, where there is no compiler. Threads take whole samples."""

from collections.abc import Callable
from itertools import count

import numpy as np
import torch
from numba import njit
from torch import Tensor

from pipeline_kernels import native
from pipeline_kernels.threads import choose_threads


def staple_layer(
    S: Tensor, coefficients: Tensor, forward: Tensor, backward: Tensor, mask: Tensor
) -> Tensor:
    """Implements `reference.staple_layer`."""
    fields, weights, tables = (
        _arrays(S),
        _weights(coefficients, S),
        _tables(forward, backward, mask),
    )
    out = np.zeros((len(S), len(weights), *S.shape[2:]), fields.dtype)

    def calculate(b: int) -> None:
        products = _products(fields[b], tables, weights.shape[1])
        _combine(weights, _rows(products), _rows(out[b]))

    _each(calculate, S)
    return torch.from_numpy(out)


def staple_gradient(
    S: Tensor, coefficients: Tensor, G: Tensor, forward: Tensor, backward: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor]:
    """Implements `reference.staple_gradient`."""
    fields, weights, tables = (
        _arrays(S),
        _weights(coefficients, S),
        _tables(forward, backward, mask),
    )
    by_result = _arrays(G * mask[..., None, None])
    by_S, partial = np.zeros_like(fields), np.zeros((len(S), *weights.shape))

    def calculate(b: int) -> None:
        products, g = _products(fields[b], tables, weights.shape[1]), _rows(by_result[b])
        _pair(g, _rows(products), partial[b])
        by_products = np.zeros_like(products)
        _combine(np.ascontiguousarray(weights.T), g, _rows(by_products))
        _transposed(fields[b], *tables, by_products, by_S[b])

    _each(calculate, S)
    by_coefficients = torch.from_numpy(partial.sum(0))
    return torch.from_numpy(by_S), by_coefficients.to(coefficients.dtype)


def _arrays(S: Tensor) -> np.ndarray:
    return S.detach().resolve_conj().resolve_neg().contiguous().numpy()


def _weights(coefficients: Tensor, S: Tensor) -> np.ndarray:
    return coefficients.detach().to(S.real.dtype).contiguous().numpy()


def _tables(*tables: Tensor) -> list[np.ndarray]:
    return [table.contiguous().numpy() for table in tables]


def _rows(x: np.ndarray) -> np.ndarray:
    return x.reshape(len(x), -1)


def _products(S: np.ndarray, tables: list[np.ndarray], n_staples: int) -> np.ndarray:
    """Returns links and staples of a sample."""
    out = np.zeros((n_staples, *S.shape[1:]), S.dtype)
    _staples(S, *tables, out)
    return out


def _each(calculate: Callable[[int], None], S: Tensor) -> None:
    """Calls a function for each sample, in as many threads as they repay."""
    numbers = count()

    def work() -> None:
        while (b := next(numbers)) < len(S):
            calculate(b)

    native.parallel(work, min(len(S), choose_threads(S.numel())))


@njit(cache=True, nogil=True)
def _combine(weights, x, out):
    for r in range(len(out)):
        for j in range(len(x)):
            for m in range(x.shape[1]):
                out[r, m] += weights[r, j] * x[j, m]


@njit(cache=True, nogil=True)
def _pair(x, y, out):
    """Writes real parts of scalar products of rows."""
    for r in range(len(x)):
        for j in range(len(y)):
            for m in range(x.shape[1]):
                out[r, j] += x[r, m].real * y[j, m].real + x[r, m].imag * y[j, m].imag


@njit(cache=True, nogil=True)
def _product(a, b, c, adjoint_a, adjoint_c, total):
    """Adds `a b c`, with adjoints of a and c where told, to `total`."""
    N = len(a)
    for i in range(N):
        for j in range(N):
            corner = 0 * a[0, 0]
            for k in range(N):
                corner += (np.conj(a[k, i]) if adjoint_a else a[i, k]) * b[k, j]
            for k in range(N):
                total[i, k] += corner * (np.conj(c[k, j]) if adjoint_c else c[j, k])


@njit(cache=True, nogil=True)
def _staples(S, forward, backward, mask, out):
    K, D, V = S.shape[:3]
    for k in range(K):
        for mu in range(D):
            for x in range(V):
                if not mask[mu, x]:
                    continue
                out[k, mu, x] = S[k, mu, x]
                for nu in range(D):
                    if nu == mu:
                        continue
                    block = 1 + nu - (nu > mu)
                    up, down, ahead = forward[nu, x], backward[nu, x], forward[mu, x]
                    turn = forward[mu, down]
                    R, L = out[block * K + k, mu, x], out[(block + D - 1) * K + k, mu, x]
                    _product(S[k, nu, x], S[k, mu, up], S[k, nu, ahead], False, True, R)
                    _product(S[k, nu, down], S[k, mu, down], S[k, nu, turn], True, False, L)


@njit(cache=True, nogil=True)
def _transposed(S, forward, backward, mask, by, out):
    """Adds derivatives by S, where `by` are those by the staples."""
    K, D, V = S.shape[:3]
    for k in range(K):
        for mu in range(D):
            for x in range(V):
                if not mask[mu, x]:
                    continue
                out[k, mu, x] += by[k, mu, x]
                for nu in range(D):
                    if nu == mu:
                        continue
                    block = 1 + nu - (nu > mu)
                    up, down, ahead = forward[nu, x], backward[nu, x], forward[mu, x]
                    turn = forward[mu, down]
                    g, h = by[block * K + k, mu, x], by[(block + D - 1) * K + k, mu, x]
                    a, b, c = S[k, nu, x], S[k, mu, up], S[k, nu, ahead]
                    _product(g, c, b, False, True, out[k, nu, x])
                    _product(a, g, c, True, False, out[k, mu, up])
                    _product(g, a, b, True, False, out[k, nu, ahead])
                    a, b, c = S[k, nu, down], S[k, mu, down], S[k, nu, turn]
                    _product(b, c, h, False, True, out[k, nu, down])
                    _product(a, h, c, False, True, out[k, mu, down])
                    _product(b, a, h, True, False, out[k, nu, turn])
