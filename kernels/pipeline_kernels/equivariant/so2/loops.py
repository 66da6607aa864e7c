"""The routines of native.c in numba, where there is no compiler."""

from itertools import count

import numpy as np
from numba import njit
from torch import Tensor

from pipeline_kernels import native
from pipeline_kernels.equivariant.so2.ends import Ends
from pipeline_kernels.equivariant.so2.layout import Layout

NOTHING = np.empty(0, np.int64)


def run(
    name: str,
    tensors: list[Tensor | None],
    ends: Ends,
    span: tuple[int, int],
    layout: Layout,
    chunk: int,
    threads: int,
) -> None:
    """Do what the routine of that name in native.c does for a span of edges or rows."""
    operands, numbers = tuple(_array(x, tensors[0]) for x in tensors), count()
    lists = tuple(_array(x) for x in (ends.index, ends.order, ends.first, ends.last))
    begin, end = span
    rows = np.array(layout.places)
    body = ROUTINES[name]

    def work() -> None:
        while (start := begin + next(numbers) * chunk) < end:
            body(operands, lists, rows, ends.span[0], start, min(start + chunk, end))

    native.parallel(work, threads)


def _array(x: Tensor | None, like: Tensor | None = None) -> np.ndarray:
    if x is not None:
        return x.detach().numpy()
    return NOTHING if like is None else np.empty((0, 1, 1), like.numpy().dtype)


@njit(cache=True, nogil=True)
def _entry(row):
    """Return where in a frame the row of the component (l, m) begins."""
    degree, order = row[0], row[1]
    return degree * (4 * degree * degree - 1) // 3 + (degree + order) * (2 * degree + 1)


@njit(cache=True, nogil=True)
def _lift(operands, lists, rows, y_begin, begin, end):
    x, D, f, y = operands
    index, _, _, _ = lists
    for e in range(begin, end):
        s = index[e] if len(index) else e
        for p in range(len(rows)):
            degree = rows[p, 0]
            out, entry = y[e - y_begin, p], _entry(rows[p])
            out[:] = 0
            for j in range(2 * degree + 1):
                value, source = D[e, entry + j], x[s, degree * degree + j]
                if len(f):
                    factor = f[e, min(degree, f.shape[1] - 1)]
                    for c in range(len(out)):
                        out[c] += value * factor[c] * source[c]
                else:
                    for c in range(len(out)):
                        out[c] += value * source[c]


@njit(cache=True, nogil=True)
def _lower(operands, lists, rows, y_begin, begin, end):
    y, D, f, x = operands
    _, order, first, last = lists
    for n in range(begin, end):
        for k in range(first[n] if len(first) else n, last[n] if len(first) else n + 1):
            e = order[k] if len(order) else k
            for p in range(len(rows)):
                degree = rows[p, 0]
                source, entry = y[e - y_begin, p], _entry(rows[p])
                for j in range(2 * degree + 1):
                    value, out = D[e, entry + j], x[n, degree * degree + j]
                    if len(f):
                        factor = f[e, min(degree, f.shape[1] - 1)]
                        for c in range(len(out)):
                            out[c] += value * factor[c] * source[c]
                    else:
                        for c in range(len(out)):
                            out[c] += value * source[c]


@njit(cache=True, nogil=True)
def _factor_gradient(operands, lists, rows, y_begin, begin, end):
    y, D, x, by_f = operands
    index, _, _, _ = lists
    for e in range(begin, end):
        s = index[e] if len(index) else e
        by_f[e] = 0
        for p in range(len(rows)):
            degree = rows[p, 0]
            out, entry = by_f[e, min(degree, by_f.shape[1] - 1)], _entry(rows[p])
            for j in range(2 * degree + 1):
                value, source, other = D[e, entry + j], x[s, degree * degree + j], y[e - y_begin, p]
                for c in range(len(out)):
                    out[c] += value * source[c] * other[c]


ROUTINES = {"lift": _lift, "lower": _lower, "factor_gradient": _factor_gradient}
