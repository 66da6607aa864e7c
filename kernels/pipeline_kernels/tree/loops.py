"""The contraction of a tree in numba: the algorithm of native.c where there is no compiler.

A routine works on one piece: a block of samples, or for the gradient a segment of several blocks.
`tree` holds the numbers of `Tree` in native.c. Functions of a node are `(array, first row, rank)`,
a tensor `(array, offset, strides of left, right and own index)`.
"""

from itertools import count

import numpy as np
from numba import njit

from pipeline_kernels import native

BLOCK = 256  # samples that go through all nodes together
HEADER, NODE = 4, 7  # numbers before the nodes, numbers of a node
FAST = {"contract", "reassoc", "nsz"}  # sums in any order, but no assumption about NaN


def run(
    name: str, tree: np.ndarray, arrays: tuple[np.ndarray, ...], piece: int, threads: int
) -> None:
    """Does what the routine of that name in native.c does.

    Args:
        name: `contract`, `tangent` or `gradient`.
        tree: numbers of the tree.
        arrays: those that the routine in native.c takes, features first.
        piece: number of samples of a piece.
        threads: number of threads.
    """
    body, n, numbers = ROUTINES[name], arrays[0].shape[1], count()

    def work() -> None:
        while (begin := next(numbers) * piece) < n:
            body(tree, arrays, begin, piece)

    native.parallel(work, threads)


@njit(cache=True, nogil=True, fastmath=FAST)
def _combine(left, right, tensor, out, length):
    """Adds `sum_ij left[i] right[j] B[i, j, k]` to `out[k]`."""
    (a, a0, na), (b, b0, nb), (to, to0, nk) = left, right, out
    B, offset, si, sj, sk = tensor
    t = np.empty(BLOCK, a.dtype)
    for k in range(nk):
        for i in range(na):
            t[:] = 0
            e = offset + i * si + k * sk
            for j in range(b0, b0 + nb - 3, 4):  # four products for each load and store of t
                B0, B1, B2, B3 = B[e], B[e + sj], B[e + 2 * sj], B[e + 3 * sj]
                for s in range(length):
                    t[s] += b[j, s] * B0 + b[j + 1, s] * B1 + b[j + 2, s] * B2 + b[j + 3, s] * B3
                e += 4 * sj
            for j in range(b0 + nb // 4 * 4, b0 + nb):
                for s in range(length):
                    t[s] += b[j, s] * B[e]
                e += sj
            for s in range(length):
                to[to0 + k, s] += a[a0 + i, s] * t[s]


@njit(cache=True, nogil=True, fastmath=FAST)
def _outer(left, right, own, sums, offset, length):
    """Adds `sum_n left[i, n] right[j, n] own[k, n]` to the entries `[i, j, k]` of `sums`."""
    (a, a0, na), (b, b0, nb), (c, c0, nc) = left, right, own
    p = np.empty(BLOCK, a.dtype)
    zero = a.dtype.type(0)
    for j in range(nb):
        for k in range(nc):
            for s in range(length):
                p[s] = b[b0 + j, s] * c[c0 + k, s]
            for i in range(na):
                total = zero
                for s in range(length):
                    total += a[a0 + i, s] * p[s]
                sums[offset + (i * nb + j) * nc + k] += total


@njit(cache=True, nogil=True)
def _node(tree, t):
    """Returns first rows of the functions of left, right and own, their ranks, and the offset."""
    at = HEADER + NODE * t
    first, ranks = (
        (tree[at], tree[at + 1], tree[at + 2]),
        (tree[at + 3], tree[at + 4], tree[at + 5]),
    )
    return first, ranks, tree[at + 6]


@njit(cache=True, nogil=True)
def _contract(tree, arrays, begin, piece):
    features, transfers, inner, root = arrays
    end = min(begin + piece, len(root))
    n_features, last, length = tree[0], tree[1] - 1, end - begin
    values = np.zeros((last + 1, BLOCK), features.dtype)
    values[:n_features, :length] = features[:, begin:end]
    for t in range(tree[2]):
        (left, right, own), (nl, nr, no), offset = _node(tree, t)
        tensor = (transfers, offset, nr * no, no, 1)
        _combine((values, left, nl), (values, right, nr), tensor, (values, own, no), length)
    inner[:, begin:end] = values[n_features:last, :length]
    root[begin:end] = values[last, :length]


@njit(cache=True, nogil=True)
def _tangent(tree, arrays, begin, piece):
    features, transfers, inner, direction, root = arrays
    end = min(begin + piece, len(root))
    n_features, last, length = tree[0], tree[1] - 1, end - begin
    values = np.empty((last + 1, BLOCK), features.dtype)
    changes = np.zeros((last + 1, BLOCK), features.dtype)
    values[:n_features, :length] = features[:, begin:end]
    values[n_features:last, :length] = inner[:, begin:end]
    for t in range(tree[2]):
        (left, right, own), (nl, nr, no), offset = _node(tree, t)
        a, b, out = (values, left, nl), (values, right, nr), (changes, own, no)
        tensor = (transfers, offset, nr * no, no, 1)
        _combine(a, b, (direction, offset, nr * no, no, 1), out, length)
        if left >= n_features:
            _combine((changes, left, nl), b, tensor, out, length)
        if right >= n_features:
            _combine(a, (changes, right, nr), tensor, out, length)
    root[begin:end] = changes[last, :length]


@njit(cache=True, nogil=True)
def _gradient(tree, arrays, begin, piece):
    features, transfers, inner, weights, by_features, partial = arrays
    end = min(begin + piece, len(weights))
    n_features, last = tree[0], tree[1] - 1
    lowest = 0 if len(by_features) else n_features  # row with a gradient
    sums = partial[begin // piece]
    sums[:] = 0
    values = np.empty((last + 1, BLOCK), features.dtype)
    grads = np.empty((last + 1, BLOCK), features.dtype)
    for start in range(begin, end, BLOCK):
        stop = min(start + BLOCK, end)
        length = stop - start
        values[:n_features, :length] = features[:, start:stop]
        values[n_features:last, :length] = inner[:, start:stop]
        grads[:] = 0
        grads[last, :length] = weights[start:stop]
        for t in range(tree[2] - 1, -1, -1):
            (left, right, own), (nl, nr, no), offset = _node(tree, t)
            a, b, g = (values, left, nl), (values, right, nr), (grads, own, no)
            _outer(a, b, g, sums, offset, length)
            if left >= lowest:
                tensor = (transfers, offset, no, 1, nr * no)
                _combine(b, g, tensor, (grads, left, nl), length)
            if right >= lowest:
                tensor = (transfers, offset, nr * no, 1, no)
                _combine(a, g, tensor, (grads, right, nr), length)
        if lowest == 0:
            by_features[:, start:stop] = grads[:n_features, :length]


ROUTINES = {"contract": _contract, "tangent": _tangent, "gradient": _gradient}
