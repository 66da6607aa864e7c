"""Exponential and logarithm in numba, where there is no compiler.

What C does with invariants is done with the eigenvectors of a Hermitian matrix here: LAPACK's are
orthogonal also where eigenvalues are equal.
"""

import numpy as np
from numba import njit

from pipeline_kernels.su3.matrices_loops import adjoint, hermitian_part, times

TURN = 2 * np.pi


@njit(cache=True, nogil=True)
def exponential(A, out):
    """Writes `reference.exponential`."""
    for n in range(len(A)):
        t, V = np.linalg.eigh(hermitian_part(A[n]))
        out[n] = times(V * np.exp(1j * t), adjoint(V))


@njit(cache=True, nogil=True)
def exponential_gradient(A, G, out):
    """Writes `reference.exponential_gradient`."""
    N = A.shape[-1]
    for n in range(len(A)):
        t, V = np.linalg.eigh(hermitian_part(A[n]))
        g = times(times(adjoint(V), G[n]), V)
        for i in range(N):
            for j in range(N):
                # conjugate of (exp(i t_i) - exp(i t_j)) / i (t_i - t_j)
                g[i, j] *= np.exp(-0.5j * (t[i] + t[j])) / _over_sine(0.5 * (t[i] - t[j]))
        out[n] = 1j * hermitian_part(times(times(V, g), adjoint(V)))


@njit(cache=True, nogil=True)
def logarithm(U, out):
    """Writes `reference.logarithm`."""
    N = U.shape[-1]
    for n in range(len(U)):
        u = U[n].astype(np.complex128)
        t = _angles(np.linalg.eigvals(u))
        found = _over_sine(t[0]) * u if N == 2 else _interpolated(u, t[0], t[2], t[1])
        out[n] = 1j * hermitian_part(found)


@njit(cache=True, nogil=True)
def _interpolated(u, a, b, c):
    """Returns the polynomial of u, without its constant, that is i angle at its eigenvalues."""
    za, zb, zc = np.exp(1j * a), np.exp(1j * b), np.exp(1j * c)
    ab = _over_sine(0.5 * (a - b)) * np.exp(0.5j * c)
    if a - c < c - b:
        change, gap = _over_sine(0.5 * (a - c)) * np.exp(0.5j * b) - ab, zc - zb
    else:
        change, gap = _over_sine(0.5 * (b - c)) * np.exp(0.5j * a) - ab, zc - za
    one = np.eye(3)
    found = ab * u
    if abs(gap) > 0:
        found += change / gap * times(u - za * one, u - zb * one)
    return found


@njit(cache=True, nogil=True)
def logarithm_gradient(A, U, G, out):
    """Writes `reference.logarithm_gradient`."""
    N = A.shape[-1]
    for n in range(len(A)):
        t, V = np.linalg.eigh(hermitian_part(A[n]))
        g = times(times(adjoint(V), hermitian_part(G[n])), V)
        for i in range(N):
            for j in range(N):
                x = 0.5 * (t[i] - t[j])
                g[i, j] *= _over_sine(x) * np.cos(x) - 1j * x
        found = times(times(V, g), adjoint(V))
        out[n] = 1j * times(U[n], found)


@njit(cache=True, nogil=True)
def _over_sine(x):
    return x / np.sin(x) if x != 0 else 1.0


@njit(cache=True, nogil=True)
def _angles(z):
    """Returns the angles of eigenvalues in the canonical cell, descending."""
    t = np.sort(np.angle(z))[::-1].copy()
    total = t.sum()
    if total > np.pi:
        t[0] -= TURN
    elif total < -np.pi:
        t[-1] += TURN
    t = np.sort(t)[::-1].copy()
    return t - t.sum() / len(t)
