"""The loops of `compiled.py`: gated messages block by block, in single precision, by numba.

Symbols are those of the package's formulas; a prime is `_t`. A block stays in the first caches.
Each loop over features stores to one array: a compiler that must exclude overlaps of many arrays
gives up on vector instructions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from pipeline_chgnet.messages.route import EPSILON

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

BLOCK = 64
"""Messages of a block; products of larger matrices start threads of the linear algebra library."""

_FAST = {"contract", "reassoc", "nsz", "arcp"}  # all of fastmath that keeps infinity and nan
OPTIONS = {"cache": True, "nogil": True, "error_model": "numpy", "fastmath": _FAST}

F = np.float32
_EPSILON, _HALF, _ONE, _TWO = F(EPSILON), F(0.5), F(1), F(2)
_LIMIT = F(87)  # beyond it exp leaves the range of single precision
_LOG2E, _LN2_HIGH, _LN2_LOW = F(1.442695041), F(0.693359375), F(-2.12194440e-4)
_C3, _C4, _C5 = F(1.6666665459e-1), F(4.1665795894e-2), F(8.3334519073e-3)
_C6, _C7 = F(1.3981999507e-3), F(1.9875691500e-4)


class Case(NamedTuple):
    """Everything that is read; an empty `weight` stands for no hidden layer, so do `factors`.

    Shapes: tables (n_t, 2 H), indices (n_messages,), factors (n_factors, D), gradient (n_targets,
    D), weight (2, H, D), bias, gain and shift (2, D).
    """

    tables: tuple[Floats, Floats, Floats]
    indices: tuple[Ints, Ints, Ints]
    factors: Floats
    factor_index: Ints
    gradient: Floats
    target: Ints
    weight: Floats
    bias: Floats
    gain: Floats
    shift: Floats


class Primal(NamedTuple):
    """Scratch memory of a block: u, s (2, BLOCK, H), n, q (2, BLOCK, D), p (BLOCK, D), r."""

    u: Floats
    s: Floats
    n: Floats
    q: Floats
    p: Floats
    r: Floats


class Sums(NamedTuple):
    """Derivatives by the parameters, each of the shape of its parameter."""

    gain: Floats
    shift: Floats
    weight: Floats
    bias: Floats


class Outputs(NamedTuple):
    """Derivatives by message: by h (n_messages, 2 H), by factor and by gradient (n_messages, D)."""

    h: Floats
    factor: Floats
    gradient: Floats


@njit(inline="always")
def sigmoid(x):
    """1 / (1 + exp(-x)) to 1.5e-7, without call or branch, so that loops over it are vectorised.

    exp(t) = 2^n exp(f) with f in [-ln 2 / 2, ln 2 / 2]; the polynomial for exp(f) is that of the
    Cephes library (Moshier, 1992).
    """
    t = -x
    t = t if t < _LIMIT else _LIMIT
    t = t if t > -_LIMIT else -_LIMIT
    n = np.floor(t * _LOG2E + _HALF)
    f = t - n * _LN2_HIGH - n * _LN2_LOW
    p = (((((_C7 * f + _C6) * f + _C5) * f + _C4) * f + _C3) * f + _HALF) * f * f + f + _ONE
    power = np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)
    return _ONE / (_ONE + p * power)


@njit(**OPTIONS)
def room(case):
    """Allocate the scratch memory of a block."""
    H, D = case.tables[0].shape[1] // 2, case.gain.shape[1]
    u = np.empty((2, BLOCK, H), F)
    n = np.empty((2, BLOCK, D), F) if case.weight.shape[1] > 0 else u
    q, p, r = np.empty((2, BLOCK, D), F), np.empty((BLOCK, D), F), np.empty((2, BLOCK), F)
    return Primal(u, np.empty((2, BLOCK, H), F), n, q, p, r)


@njit(**OPTIONS)
def gather(tables, indices, first, count, h):
    """Sum the rows of the three tables."""
    (t0, t1, t2), (i0, i1, i2), width = tables, indices, h.shape[2]
    for i in range(count):
        a, b, c = i0[first + i], i1[first + i], i2[first + i]
        for half in range(2):
            o = half * width
            for f in range(width):
                h[half, i, f] = t0[a, o + f] + t1[b, o + f] + t2[c, o + f]


@njit(**OPTIONS)
def primal(case, first, count, b):
    """Compute the messages of a block up to p and q."""
    gather(case.tables, case.indices, first, count, b.u)
    if case.weight.shape[1] > 0:
        _activate(count, b.u, b.s)
        for half in range(2):
            np.dot(b.u[half, :count], case.weight[half], b.n[half, :count])
    _normalise(case.bias, count, b.n, b.r)
    _gate(case.gain, case.shift, count, b.n, b.q, b.p)


@njit(**OPTIONS)
def _activate(count, u, s):
    width = u.shape[2]
    for half in range(2):
        for i in range(count):
            for f in range(width):
                s[half, i, f] = sigmoid(u[half, i, f])
            for f in range(width):
                u[half, i, f] *= s[half, i, f]


@njit(**OPTIONS)
def _normalise(bias, count, n, r):
    width = n.shape[2]
    for half in range(2):
        for i in range(count):
            total = F(0)
            for f in range(width):
                y = n[half, i, f] + bias[half, f]
                total += y * y
            r[half, i] = _ONE / np.sqrt(total / F(width) + _EPSILON)
            for f in range(width):
                n[half, i, f] = (n[half, i, f] + bias[half, f]) * r[half, i]


@njit(**OPTIONS)
def _gate(gain, shift, count, n, q, p):
    width = n.shape[2]
    for i in range(count):
        for f in range(width):
            q[1, i, f] = sigmoid(gain[1, f] * n[1, i, f] + shift[1, f])
        for f in range(width):
            p[i, f] = gain[0, f] * n[0, i, f] + shift[0, f]
        for f in range(width):
            q[0, i, f] = sigmoid(p[i, f])
        for f in range(width):
            p[i, f] *= q[0, i, f]


@njit(**OPTIONS)
def pull(case, first, count, g_m):
    """Compute g_m of a block, (BLOCK, D)."""
    gradient, factors, width = case.gradient, case.factors, g_m.shape[1]
    for i in range(count):
        t, w = case.target[first + i], case.factor_index[first + i]
        if len(factors):
            for f in range(width):
                g_m[i, f] = gradient[t, f] * factors[w, f]
        else:
            for f in range(width):
                g_m[i, f] = gradient[t, f]


@njit(**OPTIONS)
def gate_gradient(count, g_m, b, g_z):
    """Compute g_z of a block, (2, BLOCK, D)."""
    q, p, width = b.q, b.p, g_m.shape[1]
    for i in range(count):
        for f in range(width):
            dp = q[0, i, f] + p[i, f] - p[i, f] * q[0, i, f]
            g_z[0, i, f] = g_m[i, f] * q[1, i, f] * dp
        for f in range(width):
            g_z[1, i, f] = g_m[i, f] * p[i, f] * (q[1, i, f] - q[1, i, f] * q[1, i, f])


@njit(**OPTIONS)
def norm_gradient(count, g_n, b, k, g_y):
    """Compute g_y of a block, (2, BLOCK, D), and k, (2, BLOCK)."""
    n, r, width = b.n, b.r, g_n.shape[2]
    for half in range(2):
        for i in range(count):
            total = F(0)
            for f in range(width):
                total += g_n[half, i, f] * n[half, i, f]
            mean, scale = total / F(width), r[half, i]
            for f in range(width):
                g_y[half, i, f] = scale * (g_n[half, i, f] - n[half, i, f] * mean)
            k[half, i] = mean


@njit(**OPTIONS)
def hidden_slope(count, b, du):
    """Compute du."""
    u, s = b.u, b.s
    for half in range(2):
        for i in range(count):
            for f in range(u.shape[2]):
                du[half, i, f] = s[half, i, f] + u[half, i, f] - u[half, i, f] * s[half, i, f]


@njit(**OPTIONS)
def through_weight(g_y, weight, count, out):
    """Compute g_y Wᵀ."""
    for half in range(2):
        np.dot(g_y[half, :count], weight[half].T, out[half, :count])


@njit(**OPTIONS)
def add_norm(gain, count, g_z, n, sums):
    """Add g_z n and g_z of a block to the derivatives by gain and shift; g_z becomes g_n."""
    by_gain, by_shift, width = sums.gain, sums.shift, g_z.shape[2]
    for half in range(2):
        for i in range(count):
            for f in range(width):
                by_gain[half, f] += g_z[half, i, f] * n[half, i, f]
            for f in range(width):
                by_shift[half, f] += g_z[half, i, f]
            for f in range(width):
                g_z[half, i, f] *= gain[half, f]


@njit(**OPTIONS)
def add_weight(count, u, g_y, product, sums):
    """Add uᵀ g_y to the derivative by the weight."""
    for half in range(2):
        np.dot(u[half, :count].T, g_y[half, :count], product)
        for i in range(product.shape[0]):
            for f in range(product.shape[1]):
                sums.weight[half, i, f] += product[i, f]


@njit(**OPTIONS)
def add_bias(count, g_y, sums):
    """Add g_y to the derivative by the bias."""
    for half in range(2):
        for i in range(count):
            for f in range(g_y.shape[2]):
                sums.bias[half, f] += g_y[half, i, f]


@njit(**OPTIONS)
def store(first, count, one, other, out):
    """Write the product of two blocks (2, BLOCK, H) as rows (2 H)."""
    width = one.shape[2]
    for i in range(count):
        for half in range(2):
            for f in range(width):
                out[first + i, half * width + f] = one[half, i, f] * other[half, i, f]


@njit(**OPTIONS)
def add_to_stored(first, count, one, other, out):
    """Add the product of two blocks (2, BLOCK, H) to rows (2 H)."""
    width = one.shape[2]
    for i in range(count):
        for half in range(2):
            for f in range(width):
                out[first + i, half * width + f] += one[half, i, f] * other[half, i, f]
