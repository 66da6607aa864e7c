"""The tensor product in numba: the sums as they stand, where there is no compiler for native.c."""

from itertools import count

import numpy as np
from numba import njit

from pipeline_kernels import native


def run(name: str, arrays: tuple[np.ndarray, ...], chunk: int, threads: int) -> None:
    """Do what the routine of that name in native.c does.

    Args:
        name: `product` or `gradient`.
        arrays: those of the routine in native.c, results at zero, where an empty one stands for
            null; then places and values of all terms, senders, receivers, order and offsets.
        chunk: number of nodes that a thread takes at once.
        threads: number of threads.
    """
    body, n_nodes, numbers = ROUTINES[name], len(arrays[-1]) - 1, count()

    def work() -> None:
        while (begin := next(numbers) * chunk) < n_nodes:
            body(arrays, begin, min(begin + chunk, n_nodes))

    native.parallel(work, threads)


@njit(cache=True, nogil=True)
def _product(arrays, begin, end):
    h, Y, w, out, places, values, senders, _, order, offsets = arrays
    for n in range(begin, end):
        for k in range(offsets[n], offsets[n + 1]):
            e = order[k] if len(order) else k
            for t in range(len(values)):
                p, m1, m2, m3 = places[t, 0], places[t, 1], places[t, 2], places[t, 3]
                _add(out[n, m3], values[t] * Y[e, m2], w[e, p], h[senders[e], m1])


@njit(cache=True, nogil=True)
def _gradient(arrays, begin, end):
    g, h, Y, w, by_h, by_Y, by_w, places, values, senders, receivers, order, offsets = arrays
    for n in range(begin, end):
        for k in range(offsets[n], offsets[n + 1]):
            e = order[k] if len(order) else k
            s, r = senders[e], receivers[e]
            for t in range(len(values)):
                p, m1, m2, m3 = places[t, 0], places[t, 1], places[t, 2], places[t, 3]
                factor = values[t] * Y[e, m2]
                if by_h.size:
                    _add(by_h[s, m1], factor, w[e, p], g[r, m3])
                if by_w.size:
                    _add(by_w[e, p], factor, h[s, m1], g[r, m3])
                if by_Y.size:
                    by_Y[e, m2] += values[t] * _sum(w[e, p], h[s, m1], g[r, m3])


@njit(cache=True, nogil=True)
def _add(to, factor, a, b):
    for c in range(len(to)):
        to[c] += factor * a[c] * b[c]


@njit(cache=True, nogil=True)
def _sum(a, b, c):
    total = a.dtype.type(0)
    for i in range(len(a)):
        total += a[i] * b[i] * c[i]
    return total


ROUTINES = {"product": _product, "gradient": _gradient}
