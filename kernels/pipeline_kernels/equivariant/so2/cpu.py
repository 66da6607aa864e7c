"""Rotation to the frames of edges and back on the CPU, in numba.

The functions fill or add to tensors that exist, for a span of edges, so that a tile of operands of
the matrix products stays in the cache. A thread writes whole rows of a result.
"""

from collections.abc import Callable
from functools import cache
from itertools import count

import numpy as np
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from pipeline_kernels import native
from pipeline_kernels.equivariant.so2.ends import Ends
from pipeline_kernels.equivariant.so2.layout import Layout
from pipeline_kernels.threads import choose_threads

PIECES = 16  # per thread, so that none waits long for the last
TILE_BYTES = 2**20  # of operands of a matrix product: half of a common second-level cache
NOTHING = np.empty(0, np.int64)

Reals = NDArray[np.floating]
Integers = NDArray[np.int64]
Operands = tuple[Reals, Reals, Reals, Reals]
Lists = tuple[Integers, Integers, Integers, Integers]  # index, order, first, last of `Ends`


def lift(
    y: Tensor, x: Tensor, frames: Tensor, factors: Tensor | None, ends: Ends, layout: Layout
) -> None:
    """Write `reference.to_edges` of the span of `ends` to y."""
    _run(_lift, [x, frames, factors, y], y, ends, layout, by_row=False)


def lower(
    x: Tensor, y: Tensor, frames: Tensor, factors: Tensor | None, ends: Ends, layout: Layout
) -> None:
    """Add `reference.from_edges` of the span of `ends` to x."""
    _run(_lower, [y, frames, factors, x], y, ends, layout, by_row=True)


def factor_gradient(
    by_factors: Tensor, y: Tensor, x: Tensor, frames: Tensor, ends: Ends, layout: Layout
) -> None:
    """Write `reference.factor_gradient` of the span of `ends` to rows of all edges."""
    _run(_factor_gradient, [y, frames, x, by_factors], y, ends, layout, by_row=False)


def _run(
    body: Callable[[Operands, Lists, Integers, int, int, int], None],
    tensors: list[Tensor | None],
    y: Tensor,
    ends: Ends,
    layout: Layout,
    by_row: bool,
) -> None:
    """Call a routine in as many threads as its work repays."""
    begin, end = (0, len(ends.first)) if by_row and ends.first is not None else ends.span
    if y.numel() == 0 or begin == end:
        return
    n_threads, numbers = choose_threads(y.numel()), count()
    n_pieces = PIECES * n_threads if n_threads > 1 else 1
    chunk = max(1, (end - begin) // n_pieces)
    empty = y.new_empty(0, 1, 1)
    a, b, c, d = ((empty if x is None else x.detach()).numpy() for x in tensors)
    index, order, first, last = (
        NOTHING if x is None else x.numpy() for x in (ends.index, ends.order, ends.first, ends.last)
    )
    rows = _sort_rows(layout)

    def work() -> None:
        while (start := begin + next(numbers) * chunk) < end:
            stop = min(start + chunk, end)
            body((a, b, c, d), (index, order, first, last), rows, ends.span[0], start, stop)

    native.run_in_threads(work, n_threads)


@cache
def _sort_rows(layout: Layout) -> Integers:
    """Return degree, order and row of each component by order, sorted."""
    return np.array(sorted((*place, row) for row, place in enumerate(layout.places)))


@njit(cache=True, nogil=True)
def _find_entry(degree: int, order: int) -> int:
    """Return where in a frame the row of the component (l, m) begins."""
    return degree * (4 * degree * degree - 1) // 3 + (degree + order) * (2 * degree + 1)


@njit(cache=True, nogil=True)
def _scale(x: Reals, factors: Reals, out: Reals) -> None:
    for i in range(len(x)):
        row, factor = x[i], factors[min(int(np.sqrt(i)), len(factors) - 1)]
        for c in range(len(row)):
            out[i, c] = row[c] * factor[c]


@njit(cache=True, nogil=True, fastmath={"contract"})
def _lift(
    operands: Operands, lists: Lists, rows: Integers, y_begin: int, begin: int, end: int
) -> None:
    x, D, f, y = operands
    index, _, _, _ = lists
    scaled = np.empty(x.shape[1:], x.dtype)
    for e in range(begin, end):
        source = x[index[e] if len(index) else e]
        if len(f):
            _scale(source, f[e], scaled)
            source = scaled
        for i in range(len(rows)):
            degree = rows[i, 0]
            out, first = y[e - y_begin, rows[i, 2]], degree * degree
            entry = _find_entry(degree, rows[i, 1])
            if degree == 0:
                for c in range(len(out)):
                    out[c] = D[e, entry] * source[0, c]
                continue
            row, other = source[first], source[first + 1]
            for c in range(len(out)):
                out[c] = D[e, entry] * row[c] + D[e, entry + 1] * other[c]
            for j in range(2, 2 * degree + 1):
                value, row = D[e, entry + j], source[first + j]
                for c in range(len(out)):
                    out[c] += value * row[c]


@njit(cache=True, nogil=True, fastmath={"contract"})
def _turn_back(D: Reals, y: Reals, rows: Integers, out: Reals) -> None:
    """Write `D^T P^T y` of one edge."""
    out[:] = 0
    for i in range(len(rows)):
        degree = rows[i, 0]
        source, entry = y[rows[i, 2]], _find_entry(degree, rows[i, 1])
        for j in range(2 * degree + 1):
            value, row = D[entry + j], out[degree * degree + j]
            for c in range(len(row)):
                row[c] += value * source[c]


@njit(cache=True, nogil=True, fastmath={"contract"})
def _lower(
    operands: Operands, lists: Lists, rows: Integers, y_begin: int, begin: int, end: int
) -> None:
    y, D, f, x = operands
    _, order, first, last = lists
    turned = np.empty(x.shape[1:], x.dtype)
    for n in range(begin, end):
        for k in range(first[n] if len(first) else n, last[n] if len(first) else n + 1):
            e = order[k] if len(first) and len(order) else k
            _turn_back(D[e], y[e - y_begin], rows, turned)
            for i in range(len(turned)):
                out, row = x[n, i], turned[i]
                if len(f):
                    factor = f[e, min(int(np.sqrt(i)), f.shape[1] - 1)]
                    for c in range(len(out)):
                        out[c] += factor[c] * row[c]
                else:
                    for c in range(len(out)):
                        out[c] += row[c]


@njit(cache=True, nogil=True, fastmath={"contract"})
def _factor_gradient(
    operands: Operands, lists: Lists, rows: Integers, y_begin: int, begin: int, end: int
) -> None:
    y, D, x, by_f = operands
    index, _, _, _ = lists
    turned = np.empty(x.shape[1:], x.dtype)
    for e in range(begin, end):
        source = x[index[e] if len(index) else e]
        _turn_back(D[e], y[e - y_begin], rows, turned)
        by_f[e] = 0
        for i in range(len(turned)):
            out, row, other = by_f[e, min(int(np.sqrt(i)), by_f.shape[1] - 1)], source[i], turned[i]
            for c in range(len(out)):
                out[c] += row[c] * other[c]
