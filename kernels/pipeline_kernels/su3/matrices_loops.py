"""Small matrices in numba, for kernels where there is no compiler."""

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def adjoint(a):
    """Returns the conjugate of the transpose."""
    return np.ascontiguousarray(a.conj().T)


@njit(cache=True, nogil=True)
def times(a, b):
    """Returns the product of two matrices; a call of BLAS would take longer."""
    N = len(a)
    out = np.zeros((N, N), np.complex128)
    for i in range(N):
        for k in range(N):
            for j in range(N):
                out[i, j] += a[i, k] * b[k, j]
    return out


@njit(cache=True, nogil=True)
def trace(a):
    """Returns the sum of the diagonal."""
    total = 0j
    for i in range(len(a)):
        total += a[i, i]
    return total


@njit(cache=True, nogil=True)
def norm(a):
    """Returns the sum of squared magnitudes."""
    total = 0.0
    for x in a.flat:
        total += x.real * x.real + x.imag * x.imag
    return total


@njit(cache=True, nogil=True)
def cofactors(a):
    """Returns the determinant times the transpose of the inverse."""
    N = len(a)
    out = np.empty((N, N), np.complex128)
    for i in range(N):
        for j in range(N):
            if N == 2:
                out[i, j] = a[1 - i, 1 - j] * (1 - 2 * ((i + j) % 2))
            else:
                k, l, p, q = (i + 1) % 3, (i + 2) % 3, (j + 1) % 3, (j + 2) % 3  # noqa: E741
                out[i, j] = a[k, p] * a[l, q] - a[k, q] * a[l, p]
    return out


@njit(cache=True, nogil=True)
def determinant(a, its_cofactors):
    """Returns the sum of a row, each number times its cofactor."""
    total = 0j
    for j in range(len(a)):
        total += a[0, j] * its_cofactors[0, j]
    return total


@njit(cache=True, nogil=True)
def hermitian_part(a):
    """Returns `-i (a - a^dagger) / 2` without its trace."""
    N = len(a)
    out = np.empty((N, N), np.complex128)
    for i in range(N):
        for j in range(N):
            out[i, j] = -0.5j * (a[i, j] - np.conj(a[j, i]))
    mean = trace(out) / N
    for i in range(N):
        out[i, i] -= mean
    return out
