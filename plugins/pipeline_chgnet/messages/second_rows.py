"""The loops of `compiled.py` for the second derivative; see `rows.py`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from pipeline_chgnet.messages import rows
from pipeline_chgnet.messages.rows import BLOCK, OPTIONS, F, Floats


class Changes(NamedTuple):
    """Scratch memory of a block.

    Shapes: du, h_t, u_t (2, BLOCK, H); y_t, g_z, g_y, n_t, pq_t, a_z, a_y (2, BLOCK, D); g_m,
    g_m_t (BLOCK, D); c, k (2, BLOCK).
    """

    du: Floats
    h_t: Floats
    u_t: Floats
    y_t: Floats
    g_z: Floats
    g_y: Floats
    n_t: Floats
    pq_t: Floats
    a_z: Floats
    a_y: Floats
    g_m: Floats
    g_m_t: Floats
    c: Floats
    k: Floats


@njit(**OPTIONS)
def room(case):
    """Allocate the scratch memory of a block."""
    H, D = case.tables[0].shape[1] // 2, case.gain.shape[1]
    h_t, pair = np.empty((2, BLOCK, H), F), (2, BLOCK, D)
    return Changes(
        du=np.empty((2, BLOCK, H), F),
        h_t=h_t,
        u_t=np.empty((2, BLOCK, H), F),
        y_t=np.empty(pair, F) if case.weight.shape[1] > 0 else h_t,
        g_z=np.empty(pair, F),
        g_y=np.empty(pair, F),
        n_t=np.empty(pair, F),
        pq_t=np.empty(pair, F),
        a_z=np.empty(pair, F),
        a_y=np.empty(pair, F),
        g_m=np.empty((BLOCK, D), F),
        g_m_t=np.zeros((BLOCK, D), F),
        c=np.empty((2, BLOCK), F),
        k=np.empty((2, BLOCK), F),
    )


@njit(**OPTIONS)
def hidden_tangent(case, count, b, t):
    """Compute du, u' and y' from h'; h' becomes d²u h'."""
    rows.hidden_slope(count, b, t.du)
    u, s, du, h_t, u_t, width = b.u, b.s, t.du, t.h_t, t.u_t, t.h_t.shape[2]
    for half in range(2):
        for i in range(count):
            for f in range(width):
                u_t[half, i, f] = h_t[half, i, f] * du[half, i, f]
            for f in range(width):
                rest = s[half, i, f] - u[half, i, f] * s[half, i, f]
                h_t[half, i, f] *= (F(1) - s[half, i, f]) * (du[half, i, f] + rest)
        np.dot(u_t[half, :count], case.weight[half], t.y_t[half, :count])


@njit(**OPTIONS)
def tangent(gain, count, b, t):
    """Compute c, n', p' and q'."""
    n, r, q, p, y_t, n_t, pq_t, width = b.n, b.r, b.q, b.p, t.y_t, t.n_t, t.pq_t, gain.shape[1]
    for half in range(2):
        for i in range(count):
            total = F(0)
            for f in range(width):
                total += n[half, i, f] * y_t[half, i, f]
            mean, scale = total / F(width), r[half, i]
            for f in range(width):
                n_t[half, i, f] = scale * (y_t[half, i, f] - n[half, i, f] * mean)
            t.c[half, i] = mean
    for i in range(count):
        for f in range(width):
            dp = q[0, i, f] + p[i, f] - p[i, f] * q[0, i, f]
            pq_t[0, i, f] = gain[0, f] * n_t[0, i, f] * dp
        for f in range(width):
            dq = q[1, i, f] - q[1, i, f] * q[1, i, f]
            pq_t[1, i, f] = gain[1, f] * n_t[1, i, f] * dq


@njit(**OPTIONS)
def store_tangent(case, factors_t, first, count, b, t, outputs):
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


@njit(**OPTIONS)
def second_gate(gain, count, b, t):
    """Compute a_z."""
    q, p, g_m, g_m_t, n_t, pq_t, a_z = b.q, b.p, t.g_m, t.g_m_t, t.n_t, t.pq_t, t.a_z
    width = gain.shape[1]
    for i in range(count):
        for f in range(width):
            rest = q[0, i, f] - p[i, f] * q[0, i, f]
            curvature = (F(1) - q[0, i, f]) * (rest + p[i, f] + rest)
            a_z[0, i, f] = g_m[i, f] * q[1, i, f] * curvature * gain[0, f] * n_t[0, i, f]
        for f in range(width):
            dp = q[0, i, f] + p[i, f] - p[i, f] * q[0, i, f]
            a_z[0, i, f] += dp * (g_m[i, f] * pq_t[1, i, f] + g_m_t[i, f] * q[1, i, f])
        for f in range(width):
            curvature = (F(1) - q[1, i, f] - q[1, i, f]) * gain[1, f] * n_t[1, i, f]
            a_z[1, i, f] = g_m[i, f] * (pq_t[0, i, f] + p[i, f] * curvature)
        for f in range(width):
            dq = q[1, i, f] - q[1, i, f] * q[1, i, f]
            a_z[1, i, f] = dq * (a_z[1, i, f] + g_m_t[i, f] * p[i, f])


@njit(**OPTIONS)
def add_gain(gain, count, t, sums):
    """Add g_z n' to the derivative by the gain; g_z becomes g_n."""
    g_z, n_t, by_gain, width = t.g_z, t.n_t, sums.gain, gain.shape[1]
    for half in range(2):
        for i in range(count):
            for f in range(width):
                by_gain[half, f] += g_z[half, i, f] * n_t[half, i, f]
            for f in range(width):
                g_z[half, i, f] *= gain[half, f]


@njit(**OPTIONS)
def second_norm(count, b, t):
    """Compute a_y; `a_z` comes as gain a_z and `g_z` as g_n."""
    n, x, g_n, n_t, y_t, a_y, width = b.n, t.a_z, t.g_z, t.n_t, t.y_t, t.a_y, t.a_z.shape[2]
    for half in range(2):
        for i in range(count):
            r, c, k = b.r[half, i], t.c[half, i], t.k[half, i]
            for f in range(width):
                x[half, i, f] -= r * (c * g_n[half, i, f] + k * y_t[half, i, f])
            total = F(0)
            for f in range(width):
                total += n[half, i, f] * x[half, i, f] + g_n[half, i, f] * n_t[half, i, f]
            mean = total / F(width)
            for f in range(width):
                a_y[half, i, f] = r * (x[half, i, f] - n[half, i, f] * mean)


@njit(**OPTIONS)
def second_gradient(case, factors_t, first, count, b, t, outputs, sums):
    """Compute g_y and a_y of a block, and all that goes with them."""
    rows.pull(case, first, count, t.g_m)
    rows.gate_gradient(count, t.g_m, b, t.g_z)
    tangent(case.gain, count, b, t)
    store_tangent(case, factors_t, first, count, b, t, outputs)
    second_gate(case.gain, count, b, t)
    add_gain(case.gain, count, t, sums)
    rows.add_norm(case.gain, count, t.a_z, b.n, sums)
    rows.norm_gradient(count, t.g_z, b, t.k, t.g_y)
    second_norm(count, b, t)
