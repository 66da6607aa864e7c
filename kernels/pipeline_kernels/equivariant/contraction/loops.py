"""The contraction in numba, term by term: what runs where there is no compiler for native.c.

An absent factor, index -1, finds the last row of what is copied of an atom: ones, whose change is
zero.
"""

from itertools import count

import numpy as np
from numba import njit

from pipeline_kernels import native
from pipeline_kernels.equivariant.contraction.tables import Tables

ARRAYS = ("x", "c", "g", "u", "out", "by_x", "by_c")  # those of `Arrays` in native.c


def run(
    name: str,
    arrays: dict[str, np.ndarray],
    order: np.ndarray,
    chunks: np.ndarray,
    tables: Tables,
    threads: int,
) -> None:
    """Do what the routine of that name in native.c does.

    Args:
        name: `value`, `by_features`, `by_coefficients` or `tangents`.
        arrays: those of `ARRAYS` that the routine takes.
        order: see `AtomsByElement`.
        chunks: see `AtomsByElement`.
        tables: the polynomial.
        threads: number of threads.
    """
    nothing = np.empty((0, 0, 0), arrays["x"].dtype)
    all_arrays = tuple(arrays.get(key, nothing) for key in ARRAYS)
    body, terms, numbers = ROUTINES[name], tables.terms.numpy(), count()

    def work() -> None:
        while (number := next(numbers)) < len(chunks):
            body(all_arrays, order, chunks[number], number, terms)

    native.parallel(work, threads)


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})
def _value(arrays, order, chunk, number, terms):
    features, c, _, _, out, _, _ = arrays
    n_inputs, n_channels = features.shape[1:]
    x = np.ones((n_inputs + 1, n_channels), features.dtype)
    for atom in order[chunk[1] : chunk[2]]:
        x[:n_inputs] = features[atom]
        to = out[atom]
        to[:] = 0
        for t in range(len(terms)):
            o, i, j, k = terms[t]
            for s in range(n_channels):
                to[o, s] += c[chunk[0], t, s] * x[i, s] * x[j, s] * x[k, s]


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})
def _by_features(arrays, order, chunk, number, terms):
    features, c, g, _, _, by_x, _ = arrays
    n_inputs, n_channels = features.shape[1:]
    x = np.ones((n_inputs + 1, n_channels), features.dtype)
    to = np.empty_like(x)
    for atom in order[chunk[1] : chunk[2]]:
        x[:n_inputs] = features[atom]
        to[:] = 0
        for t in range(len(terms)):
            o, i, j, k = terms[t]
            for s in range(n_channels):
                w = c[chunk[0], t, s] * g[atom, o, s]
                a, b, d = x[i, s], x[j, s], x[k, s]
                to[i, s] += w * b * d
                to[j, s] += w * a * d
                to[k, s] += w * a * b
        by_x[atom] = to[:n_inputs]


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})
def _by_coefficients(arrays, order, chunk, number, terms):
    features, _, g, _, _, _, by_c = arrays
    n_inputs, n_channels = features.shape[1:]
    x = np.ones((n_inputs + 1, n_channels), features.dtype)
    to = by_c[number]
    to[:] = 0
    for atom in order[chunk[1] : chunk[2]]:
        x[:n_inputs] = features[atom]
        for t in range(len(terms)):
            o, i, j, k = terms[t]
            for s in range(n_channels):
                to[t, s] += g[atom, o, s] * x[i, s] * x[j, s] * x[k, s]


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})
def _tangents(arrays, order, chunk, number, terms):
    features, c, g, direction, out, by_x, by_c = arrays
    n_inputs, n_channels = features.shape[1:]
    x = np.ones((n_inputs + 1, n_channels), features.dtype)
    u, to = np.zeros_like(x), np.empty_like(x)
    by_c[number] = 0
    for atom in order[chunk[1] : chunk[2]]:
        x[:n_inputs], u[:n_inputs] = features[atom], direction[atom]
        out[atom], to[:] = 0, 0
        for t in range(len(terms)):
            o, i, j, k = terms[t]
            for s in range(n_channels):
                w = c[chunk[0], t, s] * g[atom, o, s]
                a, b, d = x[i, s], x[j, s], x[k, s]
                da, db, dd = u[i, s], u[j, s], u[k, s]
                change = da * b * d + a * db * d + a * b * dd
                out[atom, o, s] += c[chunk[0], t, s] * change
                by_c[number, t, s] += g[atom, o, s] * change
                to[i, s] += w * (db * d + b * dd)
                to[j, s] += w * (da * d + a * dd)
                to[k, s] += w * (da * b + a * db)
        by_x[atom] = to[:n_inputs]


ROUTINES = {
    "value": _value,
    "by_features": _by_features,
    "by_coefficients": _by_coefficients,
    "tangents": _tangents,
}
