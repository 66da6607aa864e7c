"""The loops of `compiled.py` for the second derivative; see `rows.py`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from pipeline_chgnet.messages import rows
from pipeline_chgnet.messages.rows import BLOCK, OPTIONS, F, Floats


class Changes(NamedTuple):
    """Scratch memory of a block: du, h_t, u_t (2, BLOCK, H) and y_t, g_y, a_y (2, BLOCK, D).

    Of one message: g_m, g_m_t, m_t (D,) and g_z, n_t, z_t, pq_t, a_z (2, D).
    """

    du: Floats
    h_t: Floats
    u_t: Floats
    y_t: Floats
    g_y: Floats
    a_y: Floats
    g_m: Floats
    g_m_t: Floats
    m_t: Floats
    g_z: Floats
    n_t: Floats
    z_t: Floats
    pq_t: Floats
    a_z: Floats


@njit(**OPTIONS)
def room(case):
    """Allocate the scratch memory of a block."""
    H, D = case.tables[0].shape[1] // 2, case.gain.shape[1]
    h_t, pair = np.empty((2, BLOCK, H), F), (2, D)
    return Changes(
        np.empty((2, BLOCK, H), F),
        h_t,
        np.empty((2, BLOCK, H), F),
        np.empty((2, BLOCK, D), F) if case.weight.shape[1] > 0 else h_t,
        np.empty((2, BLOCK, D), F),
        np.empty((2, BLOCK, D), F),
        np.empty(D, F),
        np.zeros(D, F),
        np.empty(D, F),
        np.empty(pair, F),
        np.empty(pair, F),
        np.empty(pair, F),
        np.empty(pair, F),
        np.empty(pair, F),
    )


@njit(**OPTIONS)
def hidden_tangent(case, count, b, t):
    """Compute du, u' and y' from h'; h' becomes d²u h'."""
    rows.hidden_slope(count, b, t.du)
    u, s, width = b.u, b.s, t.h_t.shape[2]
    for half in range(2):
        for i in range(count):
            for f in range(width):
                t.u_t[half, i, f] = t.h_t[half, i, f] * t.du[half, i, f]
            for f in range(width):
                rest = s[half, i, f] - u[half, i, f] * s[half, i, f]
                t.h_t[half, i, f] *= (F(1) - s[half, i, f]) * (t.du[half, i, f] + rest)
        np.dot(t.u_t[half, :count], case.weight[half], t.y_t[half, :count])


@njit(**OPTIONS)
def tangent(i, gain, b, t):
    """Compute n', z', p', q' and m' of message i of a block; return c of core and gate."""
    n, q, p, y_t, width = b.n, b.q, b.p, t.y_t, t.m_t.shape[0]
    c_core, c_gate = F(0), F(0)
    for half in range(2):
        c = F(0)
        for f in range(width):
            c += n[half, i, f] * y_t[half, i, f]
        c /= F(width)
        for f in range(width):
            t.n_t[half, f] = b.r[half, i] * (y_t[half, i, f] - n[half, i, f] * c)
        for f in range(width):
            t.z_t[half, f] = gain[half, f] * t.n_t[half, f]
        c_core, c_gate = (c, c_gate) if half == 0 else (c_core, c)
    for f in range(width):
        t.pq_t[0, f] = t.z_t[0, f] * (q[0, i, f] + p[i, f] - p[i, f] * q[0, i, f])
    for f in range(width):
        t.pq_t[1, f] = t.z_t[1, f] * (q[1, i, f] - q[1, i, f] * q[1, i, f])
    for f in range(width):
        t.m_t[f] = t.pq_t[0, f] * q[1, i, f] + p[i, f] * t.pq_t[1, f]
    return c_core, c_gate


@njit(**OPTIONS)
def store_tangent(case, factors_t, e, i, b, t, outputs):
    """Write the derivatives of message e, which is i of a block, by gradient and by factor."""
    target, w, width = case.target[e], case.factor_index[e], t.m_t.shape[0]
    if len(case.factors) == 0:
        for f in range(width):
            outputs.gradient[e, f] = t.m_t[f]
        return
    for f in range(width):
        outputs.factor[e, f] = t.m_t[f] * case.gradient[target, f]
    for f in range(width):
        t.g_m_t[f] = case.gradient[target, f] * factors_t[w, f]
    for f in range(width):
        t.m_t[f] *= case.factors[w, f]
    for f in range(width):
        outputs.gradient[e, f] = t.m_t[f] + b.p[i, f] * b.q[1, i, f] * factors_t[w, f]


@njit(**OPTIONS)
def second_gate(i, b, t):
    """Compute a_z of message i of a block."""
    q, p, g_m, g_m_t = b.q, b.p, t.g_m, t.g_m_t
    for f in range(g_m.shape[0]):
        q_core, q_gate = q[0, i, f], q[1, i, f]
        rest = q_core - p[i, f] * q_core
        slope, curvature = rest + p[i, f], (F(1) - q_core) * (rest + p[i, f] + rest)
        change = g_m[f] * t.pq_t[1, f] + g_m_t[f] * q_gate
        t.a_z[0, f] = change * slope + g_m[f] * q_gate * curvature * t.z_t[0, f]
    for f in range(g_m.shape[0]):
        q_gate = q[1, i, f]
        change = g_m[f] * t.pq_t[0, f] + g_m_t[f] * p[i, f]
        curved = g_m[f] * p[i, f] * (F(1) - q_gate - q_gate) * t.z_t[1, f]
        t.a_z[1, f] = (q_gate - q_gate * q_gate) * (change + curved)


@njit(**OPTIONS)
def add_gain(gain, t, sums):
    """Add g_z n' to the derivative by the gain; g_z becomes g_n."""
    for half in range(2):
        for f in range(gain.shape[1]):
            sums.gain[half, f] += t.g_z[half, f] * t.n_t[half, f]
        for f in range(gain.shape[1]):
            t.g_z[half, f] *= gain[half, f]


@njit(**OPTIONS)
def second_norm(i, c, k, b, t):
    """Compute a_y of message i; `a_z` comes as gain a_z and `g_z` as g_n."""
    n, x, g_n, width = b.n, t.a_z, t.g_z, t.a_z.shape[1]
    for half in range(2):
        r = b.r[half, i]
        for f in range(width):
            x[half, f] -= r * (c[half] * g_n[half, f] + k[half] * t.y_t[half, i, f])
        mean = F(0)
        for f in range(width):
            mean += n[half, i, f] * x[half, f] + g_n[half, f] * t.n_t[half, f]
        mean /= F(width)
        for f in range(width):
            t.a_y[half, i, f] = r * (x[half, f] - n[half, i, f] * mean)


@njit(**OPTIONS)
def second_message(case, factors_t, e, i, b, t, outputs, sums):
    """Compute g_y and a_y of message e, which is i of a block, and all that goes with it."""
    rows.pull(case, e, t.g_m)
    rows.gate_gradient(i, t.g_m, b, t.g_z)
    c = tangent(i, case.gain, b, t)
    store_tangent(case, factors_t, e, i, b, t, outputs)
    second_gate(i, b, t)
    add_gain(case.gain, t, sums)
    rows.add_norm(case.gain, i, t.a_z, b.n, sums)
    k = rows.norm_gradient(i, t.g_z, b, t.g_y)
    second_norm(i, c, k, b, t)
