"""Unitary factors of matrices in numba, where there is no compiler."""

import numpy as np
from numba import njit

from pipeline_kernels.su3.matrices_loops import adjoint, cofactors, determinant, norm, times, trace

MAX_STEPS, CONVERGED = 24, 1e-16  # of Newton's iteration; squared change


@njit(cache=True, nogil=True)
def polar(M, out, special):
    """Writes `reference.polar`."""
    N = M.shape[-1]
    for n in range(len(M)):
        x = _unitary_factor(M[n].astype(np.complex128))
        if special:
            x *= np.exp(-1j / N * np.angle(determinant(x, cofactors(x))))
        out[n] = x


@njit(cache=True, nogil=True)
def _unitary_factor(x):
    for _ in range(MAX_STEPS):
        c = cofactors(x)
        det = determinant(x, c)
        size = abs(det) ** 2
        if size == 0:
            x[:] = np.nan
            break
        scale = (norm(c) / size / norm(x)) ** 0.25
        following = 0.5 * scale * x + 0.5 / (scale * size) * det * c.conj()
        change = norm(following - x)
        x = following
        if not change > CONVERGED:
            break
    return x


@njit(cache=True, nogil=True)
def polar_gradient(M, W, G, out, special):
    """Writes `reference.polar_gradient`."""
    N = M.shape[-1]
    for n in range(len(M)):
        w = W[n].astype(np.complex128)
        inverse = adjoint(w)
        p, y = times(inverse, M[n]), times(inverse, G[n])
        y = y - adjoint(y)
        if special:
            phase = trace(p) / abs(trace(p))
            p, w = p * np.conj(phase), w * phase
            y -= trace(y) / N * np.eye(N)
        out[n] = times(w, _half_anticommutator(0.5 * (p + adjoint(p)), y))


@njit(cache=True, nogil=True)
def _half_anticommutator(p, y):
    """Solves `p x + x p = y`: see `projection_reference.half_anticommutator`."""
    N = len(p)
    one = np.eye(N)
    c = cofactors(p)
    e1, t0, t1 = trace(p).real, trace(y), trace(times(p, y))
    if N == 2:
        e2 = determinant(p, c).real
        along = ((e1 * e1 - e2) * t0 - e1 * t1) * one + (t1 - e1 * t0) * p
        return y / e1 + along / (2 * e1 * e2)
    e2, e3 = trace(c).real, determinant(p, c).real
    square = times(p, p)
    t2 = trace(times(square, y))
    q, det = e1 * one - p, e1 * e2 - e3
    mixed = 2 * e1 * e3 - e1**2 * e2
    along = ((e1 * e2**2 - e3 * (e1**2 + e2)) * t0 + mixed * t1 + det * t2) * one
    along += (mixed * t0 + (e1**3 - e3) * t1 - e1**2 * t2) * p
    along += (det * t0 - e1**2 * t1 + e1 * t2) * square
    return (times(times(q, y), q) + along / (2 * e3)) / det
