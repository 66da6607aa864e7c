"""The loops of `compiled.py`: gated messages block by block, in single precision, by numba.

Symbols are those of the package's formulas; a prime is `_t`. A block stays in the first caches.
Each loop over features stores to one array: a compiler that must exclude overlaps of many arrays
gives up on vector instructions. All is in one file, since numba keeps compiled code until the file
of the outermost function changes.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from pipeline_chgnet.messages.arrays import BLOCK
from pipeline_chgnet.messages.route import EPSILON

_FAST = {"contract", "reassoc", "nsz", "arcp"}  # all of fastmath that keeps infinity and nan
_OPTIONS = {"cache": True, "nogil": True, "error_model": "numpy", "fastmath": _FAST}

_F = np.float32
_ZERO, _HALF, _ONE, _EPSILON = _F(0), _F(0.5), _F(1), _F(EPSILON)
_LIMIT = _F(87)  # beyond it exp leaves the range of single precision
_LOG2E, _LN2_HIGH, _LN2_LOW = _F(1.442695041), _F(0.693359375), _F(-2.12194440e-4)
_C3, _C4, _C5 = _F(1.6666665459e-1), _F(4.1665795894e-2), _F(8.3334519073e-3)
_C6, _C7 = _F(1.3981999507e-3), _F(1.9875691500e-4)


@njit(inline="always")
def sigmoid(x):
    """1 / (1 + exp(-x)) to 3e-7, without call or branch, so that loops over it are vectorised.

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


@njit(**_OPTIONS)
def values(case, b, messages, bounds):
    """Compute the messages of ranges, times their factors."""
    q, p, factors, width = b.q, b.p, case.factors, messages.shape[1]
    for first in range(bounds[0], bounds[-1], BLOCK):
        count = min(BLOCK, bounds[-1] - first)
        _primal(case, first, count, b)
        for i in range(count):
            e, w = first + i, case.factor_index[first + i]
            for f in range(width):
                messages[e, f] = p[i, f] * q[1, i, f]
            if len(factors):
                for f in range(width):
                    messages[e, f] *= factors[w, f]


@njit(**_OPTIONS)
def first_derivative(case, b, outputs, sums, bounds):
    """Compute the derivatives by h, factors and parameters of ranges."""
    for r in range(len(bounds) - 1):
        for first in range(bounds[r], bounds[r + 1], BLOCK):
            count = min(BLOCK, bounds[r + 1] - first)
            _primal(case, first, count, b)
            _pull(case, first, count, b.g_m)
            _store_factor(case, first, count, b, outputs.factor)
            _gate_gradient(count, b)
            _add_norm(case.gain, count, b.g_z, b.n, sums.gain[r], sums.shift[r])
            _norm_gradient(count, b)
            if case.weight.shape[1] > 0:
                _add_weight(count, b.u, b.g_y, b.product, sums.weight[r])
                _add_bias(count, b.g_y, sums.bias[r])
                _hidden_slope(count, b)
                _through_weight(b.g_y, case.weight, count, b.u)
                _store(first, count, b.u, b.du, outputs.h)
            else:
                _store(first, count, b.g_y, b.du, outputs.h)


@njit(**_OPTIONS)
def second_derivative(case, directions, b, t, outputs, sums, bounds):
    """Compute the derivatives of the change along directions, for ranges."""
    for r in range(len(bounds) - 1):
        for first in range(bounds[r], bounds[r + 1], BLOCK):
            count = min(BLOCK, bounds[r + 1] - first)
            _primal(case, first, count, b)
            _gather(directions.tables, case.indices, first, count, t.h_t)
            if case.weight.shape[1] > 0:
                _hidden_tangent(case, count, b, t)
            _pull(case, first, count, b.g_m)
            _gate_gradient(count, b)
            _tangent(case.gain, count, b, t)
            _store_tangent(case, directions.factors, first, count, b, t, outputs)
            _second_gate(case.gain, count, b, t)
            _add_norm(case.gain, count, b.g_z, t.n_t, sums.gain[r], None)
            _add_norm(case.gain, count, t.a_z, b.n, sums.gain[r], sums.shift[r])
            _norm_gradient(count, b)
            _second_norm(count, b, t)
            if case.weight.shape[1] > 0:
                _add_weight(count, b.u, t.a_y, b.product, sums.weight[r])
                _add_weight(count, t.u_t, b.g_y, b.product, sums.weight[r])
                _add_bias(count, t.a_y, sums.bias[r])
                _through_weight(t.a_y, case.weight, count, b.u)
                _through_weight(b.g_y, case.weight, count, t.u_t)
                _store(first, count, b.u, b.du, outputs.h)
                _add_to_stored(first, count, t.u_t, t.h_t, outputs.h)
            else:
                _store(first, count, t.a_y, b.du, outputs.h)


@njit(**_OPTIONS)
def _gather(tables, indices, first, count, h):
    (t0, t1, t2), (i0, i1, i2), width = tables, indices, h.shape[2]
    for i in range(count):
        a, b, c = i0[first + i], i1[first + i], i2[first + i]
        for half in range(2):
            o = half * width
            for f in range(width):
                h[half, i, f] = t0[a, o + f] + t1[b, o + f] + t2[c, o + f]


@njit(**_OPTIONS)
def _primal(case, first, count, b):
    """Compute u, s, n, r, q and p."""
    _gather(case.tables, case.indices, first, count, b.u)
    if case.weight.shape[1] > 0:
        _activate(count, b.u, b.s)
        for half in range(2):
            np.dot(b.u[half, :count], case.weight[half], b.n[half, :count])
    _normalise(case.bias, count, b.n, b.r)
    _gate(case.gain, case.shift, count, b.n, b.q, b.p)


@njit(**_OPTIONS)
def _activate(count, u, s):
    width = u.shape[2]
    for half in range(2):
        for i in range(count):
            for f in range(width):
                s[half, i, f] = sigmoid(u[half, i, f])
            for f in range(width):
                u[half, i, f] *= s[half, i, f]


@njit(**_OPTIONS)
def _normalise(bias, count, n, r):
    width = n.shape[2]
    for half in range(2):
        for i in range(count):
            total = _ZERO
            for f in range(width):
                y = n[half, i, f] + bias[half, f]
                total += y * y
            scale = _ONE / np.sqrt(total / _F(width) + _EPSILON)
            for f in range(width):
                n[half, i, f] = (n[half, i, f] + bias[half, f]) * scale
            r[half, i] = scale


@njit(**_OPTIONS)
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


@njit(**_OPTIONS)
def _pull(case, first, count, g_m):
    gradient, factors, width = case.gradient, case.factors, g_m.shape[1]
    for i in range(count):
        t, w = case.target[first + i], case.factor_index[first + i]
        for f in range(width):
            g_m[i, f] = gradient[t, f]
        if len(factors):
            for f in range(width):
                g_m[i, f] *= factors[w, f]


@njit(**_OPTIONS)
def _gate_gradient(count, b):
    q, p, g_m, g_z, width = b.q, b.p, b.g_m, b.g_z, b.p.shape[1]
    for i in range(count):
        for f in range(width):
            dp = q[0, i, f] + p[i, f] - p[i, f] * q[0, i, f]
            g_z[0, i, f] = g_m[i, f] * q[1, i, f] * dp
        for f in range(width):
            g_z[1, i, f] = g_m[i, f] * p[i, f] * (q[1, i, f] - q[1, i, f] * q[1, i, f])


@njit(**_OPTIONS)
def _add_norm(gain, count, g_z, n, by_gain, by_shift):
    """Add g_z n to the derivative by the gain, g_z to that by the shift; g_z becomes g_n."""
    width = g_z.shape[2]
    for half in range(2):
        for i in range(count):
            for f in range(width):
                by_gain[half, f] += g_z[half, i, f] * n[half, i, f]
            if by_shift is not None:
                for f in range(width):
                    by_shift[half, f] += g_z[half, i, f]
            for f in range(width):
                g_z[half, i, f] *= gain[half, f]


@njit(**_OPTIONS)
def _norm_gradient(count, b):
    """Compute k and g_y; `g_z` comes as g_n."""
    n, g_n, g_y, width = b.n, b.g_z, b.g_y, b.n.shape[2]
    for half in range(2):
        for i in range(count):
            total = _ZERO
            for f in range(width):
                total += g_n[half, i, f] * n[half, i, f]
            k, scale = total / _F(width), b.r[half, i]
            for f in range(width):
                g_y[half, i, f] = scale * (g_n[half, i, f] - n[half, i, f] * k)
            b.k[half, i] = k


@njit(**_OPTIONS)
def _hidden_slope(count, b):
    u, s, du = b.u, b.s, b.du
    for half in range(2):
        for i in range(count):
            for f in range(u.shape[2]):
                du[half, i, f] = s[half, i, f] + u[half, i, f] - u[half, i, f] * s[half, i, f]


@njit(**_OPTIONS)
def _through_weight(g_y, weight, count, out):
    for half in range(2):
        np.dot(g_y[half, :count], weight[half].T, out[half, :count])


@njit(**_OPTIONS)
def _add_weight(count, u, g_y, product, by_weight):
    for half in range(2):
        np.dot(u[half, :count].T, g_y[half, :count], product)
        for i in range(product.shape[0]):
            for f in range(product.shape[1]):
                by_weight[half, i, f] += product[i, f]


@njit(**_OPTIONS)
def _add_bias(count, g_y, by_bias):
    for half in range(2):
        for i in range(count):
            for f in range(g_y.shape[2]):
                by_bias[half, f] += g_y[half, i, f]


@njit(**_OPTIONS)
def _store(first, count, one, other, out):
    """Write the product of two arrays (2, BLOCK, H) as rows (2 H)."""
    width = one.shape[2]
    for i in range(count):
        for half in range(2):
            for f in range(width):
                out[first + i, half * width + f] = one[half, i, f] * other[half, i, f]


@njit(**_OPTIONS)
def _add_to_stored(first, count, one, other, out):
    width = one.shape[2]
    for i in range(count):
        for half in range(2):
            for f in range(width):
                out[first + i, half * width + f] += one[half, i, f] * other[half, i, f]


@njit(**_OPTIONS)
def _store_factor(case, first, count, b, by_factor):
    p, q, gradient, width = b.p, b.q, case.gradient, by_factor.shape[1]
    for i in range(count if len(by_factor) else 0):
        t = case.target[first + i]
        for f in range(width):
            by_factor[first + i, f] = gradient[t, f] * p[i, f] * q[1, i, f]


@njit(**_OPTIONS)
def _hidden_tangent(case, count, b, t):
    """Compute du, u' and y' from h'; h' becomes d²u h'."""
    _hidden_slope(count, b)
    u, s, du, h_t, u_t, width = b.u, b.s, b.du, t.h_t, t.u_t, t.h_t.shape[2]
    for half in range(2):
        for i in range(count):
            for f in range(width):
                u_t[half, i, f] = h_t[half, i, f] * du[half, i, f]
            for f in range(width):
                rest = s[half, i, f] - u[half, i, f] * s[half, i, f]
                h_t[half, i, f] *= (_ONE - s[half, i, f]) * (du[half, i, f] + rest)
        np.dot(u_t[half, :count], case.weight[half], t.y_t[half, :count])


@njit(**_OPTIONS)
def _tangent(gain, count, b, t):
    """Compute c, n', p' and q'."""
    n, q, p, y_t, n_t, pq_t, width = b.n, b.q, b.p, t.y_t, t.n_t, t.pq_t, gain.shape[1]
    for half in range(2):
        for i in range(count):
            total = _ZERO
            for f in range(width):
                total += n[half, i, f] * y_t[half, i, f]
            c, scale = total / _F(width), b.r[half, i]
            for f in range(width):
                n_t[half, i, f] = scale * (y_t[half, i, f] - n[half, i, f] * c)
            t.c[half, i] = c
    for i in range(count):
        for f in range(width):
            dp = q[0, i, f] + p[i, f] - p[i, f] * q[0, i, f]
            pq_t[0, i, f] = gain[0, f] * n_t[0, i, f] * dp
        for f in range(width):
            dq = q[1, i, f] - q[1, i, f] * q[1, i, f]
            pq_t[1, i, f] = gain[1, f] * n_t[1, i, f] * dq


@njit(**_OPTIONS)
def _store_tangent(case, factors_t, first, count, b, t, outputs):
    """Write the derivatives by gradient and by factor, and compute g_m'."""
    q, p, pq_t, g_m_t, out, width = b.q, b.p, t.pq_t, t.g_m_t, outputs.gradient, b.p.shape[1]
    gradient, factors, by_factor = case.gradient, case.factors, outputs.factor
    for i in range(count):
        e = first + i
        for f in range(width):
            out[e, f] = pq_t[0, i, f] * q[1, i, f] + p[i, f] * pq_t[1, i, f]
        if len(factors):
            target, w = case.target[e], case.factor_index[e]
            for f in range(width):
                by_factor[e, f] = out[e, f] * gradient[target, f]
            for f in range(width):
                g_m_t[i, f] = gradient[target, f] * factors_t[w, f]
            for f in range(width):
                out[e, f] *= factors[w, f]
            for f in range(width):
                out[e, f] += p[i, f] * q[1, i, f] * factors_t[w, f]


@njit(**_OPTIONS)
def _second_gate(gain, count, b, t):
    """Compute a_z."""
    q, p, g_m, g_m_t, n_t, pq_t, a_z = b.q, b.p, b.g_m, t.g_m_t, t.n_t, t.pq_t, t.a_z
    width = gain.shape[1]
    for i in range(count):
        for f in range(width):
            rest = q[0, i, f] - p[i, f] * q[0, i, f]
            curvature = (_ONE - q[0, i, f]) * (rest + p[i, f] + rest)
            a_z[0, i, f] = g_m[i, f] * q[1, i, f] * curvature * gain[0, f] * n_t[0, i, f]
        for f in range(width):
            dp = q[0, i, f] + p[i, f] - p[i, f] * q[0, i, f]
            a_z[0, i, f] += dp * (g_m[i, f] * pq_t[1, i, f] + g_m_t[i, f] * q[1, i, f])
        for f in range(width):
            curvature = (_ONE - q[1, i, f] - q[1, i, f]) * gain[1, f] * n_t[1, i, f]
            a_z[1, i, f] = g_m[i, f] * (pq_t[0, i, f] + p[i, f] * curvature)
        for f in range(width):
            dq = q[1, i, f] - q[1, i, f] * q[1, i, f]
            a_z[1, i, f] = dq * (a_z[1, i, f] + g_m_t[i, f] * p[i, f])


@njit(**_OPTIONS)
def _second_norm(count, b, t):
    """Compute a_y; `a_z` comes as gain a_z and `g_z` as g_n."""
    n, x, g_n, n_t, y_t, a_y, width = b.n, t.a_z, b.g_z, t.n_t, t.y_t, t.a_y, t.a_z.shape[2]
    for half in range(2):
        for i in range(count):
            r, c, k = b.r[half, i], t.c[half, i], b.k[half, i]
            for f in range(width):
                x[half, i, f] -= r * (c * g_n[half, i, f] + k * y_t[half, i, f])
            total = _ZERO
            for f in range(width):
                total += n[half, i, f] * x[half, i, f] + g_n[half, i, f] * n_t[half, i, f]
            mean = total / _F(width)
            for f in range(width):
                a_y[half, i, f] = r * (x[half, i, f] - n[half, i, f] * mean)
