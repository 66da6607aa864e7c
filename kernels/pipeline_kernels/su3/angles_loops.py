"""The routines of angles.c in numba, where there is no compiler."""

import math

import numpy as np
from numba import njit

from pipeline_kernels.su3.matrices_loops import norm, times, trace

TURN = 2 * math.pi
SMALLEST = 1e-30
TINY = 1e-280
# Places in descending order of the single angle, the upper and the lower one of the pair.
ABOVE, BELOW, SPLIT, PAIR = (0, 1, 2), (2, 0, 1), (1, 2, 0), (0, 0, 1)


def eigenangles(U: np.ndarray, angles: np.ndarray) -> None:
    """Writes angles `(n, N)` of matrices `(n, N, N)`."""
    _eigenangles(U.astype(np.complex128), noise_of(U), angles, workspace(U))


def eigenangles_gradient(U: np.ndarray, weights: np.ndarray, gradient: np.ndarray) -> None:
    """Writes the gradients `(n, N, N)` of weighted angles."""
    found = np.zeros(U.shape, np.complex128)
    _eigenangles_gradient(U.astype(np.complex128), noise_of(U), weights, found, workspace(U))
    gradient[:] = found


def noise_of(U: np.ndarray) -> float:
    """Returns the distance of eigenvalues below which three count as equal."""
    return 64 * float(np.finfo(U.dtype).eps)


def workspace(U: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns memory for powers of a matrix, polynomials in it, and gaps."""
    n_colours = U.shape[1]
    powers = np.zeros((4, n_colours, n_colours), np.complex128)
    powers[0] = np.eye(n_colours)
    return powers, np.zeros((2, 3), np.complex128), np.zeros(3)


@njit(cache=True, nogil=True)
def _eigenangles(U, noise, angles, space):
    powers, projectors, gaps = space
    for n in range(len(U)):
        decompose(U[n], noise, powers, projectors, gaps)
        angles_of(gaps, angles[n])


@njit(cache=True, nogil=True)
def _eigenangles_gradient(U, noise, weights, gradient, space):
    powers, projectors, gaps = space
    values = np.empty(3, np.complex128)
    for n in range(len(U)):
        places, pair, single, _, _ = decompose(U[n], noise, powers, projectors, gaps)
        w, mean = weights[n], weights[n].mean()
        values[0] = 1j * (w[places[0]] - mean) * single
        values[1] = 1j * (w[places[1]] - mean) * pair[0]
        values[2] = 1j * (w[places[2]] - mean) * pair[1]
        add_projectors(gradient[n], values, powers, projectors)


@njit(cache=True, nogil=True)
def decompose(U, noise, powers, projectors, gaps):
    """Fills A and A^2 (rows 1 and 2), polynomials of the single projector and the difference, gaps.

    Returns places of single, upper and lower angle; the eigenvalues of the pair; the single one, of
    U and of A; whether all are equal but for noise.
    """
    n_colours, m = len(U), trace(U) / len(U)
    for i in range(n_colours):
        for j in range(n_colours):
            powers[1, i, j] = U[i, j] - (m if i == j else 0)
    projectors[:] = 0
    if n_colours == 2:
        sine = math.sqrt(norm(powers[1]) / 2)
        half, phase, cosine, z, x = math.atan2(sine, m.real), 1 + 0j, m.real, 0j, 0j
        places, close = PAIR, False
        gaps[0], gaps[1] = 2 * half, TURN - 2 * half
        projectors[1, 1] = 1
    else:
        powers[2] = times(powers[1], powers[1])
        x, close = _single(powers, projectors, noise)
        powers[3] = 0
        add_polynomial(powers[3], projectors[1], powers)
        sine = math.sqrt(norm(powers[3]) / 2)
        centre, z = m - x / 2, m + x
        cosine = abs(centre)
        half, phase = math.atan2(sine, cosine), centre / cosine
        places = _fill_gaps(half, z, centre, gaps)
        z /= abs(z)
    none = close or sine < TINY
    for k in range(3):
        projectors[1, k] = 0 if none else projectors[1, k] / (1j * sine * phase)
        gaps[k] = max(gaps[k], SMALLEST)
    pair = (phase * complex(cosine, sine), phase * complex(cosine, -sine))
    return places, pair, z, x, close


@njit(cache=True, nogil=True)
def _single(powers, projectors, noise):
    """Returns the root of `x^3 - 3 p x - 2 q` that is farthest from the others, and if all are one.

    Also fills the polynomials of its projector and of half the difference of the others.
    """
    p, q = trace(powers[2]) / 6, trace_product(powers[1], powers[2]) / 6
    third = complex(-0.5, math.sqrt(0.75))
    root = np.sqrt(q * q - p * p * p)
    cube = q + root if abs(q + root) > abs(q - root) else q - root
    angle = math.atan2(cube.imag, cube.real) / 3
    r = abs(cube) ** (1 / 3) * complex(math.cos(angle), math.sin(angle))
    x, distance = 0j, -1.0
    for _ in range(3):
        other = r + (p / r if r != 0 else 0)
        if abs(other * other - p) > distance:
            x, distance = other, abs(other * other - p)
        r *= third
    slope = 3 * (x * x - p)
    close = abs(slope) < noise * noise
    if close:
        projectors[0, 0], projectors[1, 1] = 1 / 3, 1
        return 0j, close
    for _ in range(2):
        x -= (x * x * x - 3 * p * x - 2 * q) / slope
        slope = 3 * (x * x - p)
    projectors[0, 0], projectors[0, 1] = (x * x - 3 * p) / slope, x / slope
    projectors[0, 2] = 1 / slope
    for k in range(3):
        projectors[1, k] = -1.5 * x * projectors[0, k]
    projectors[1, 0] += x / 2
    projectors[1, 1] += 1
    return x, close


@njit(cache=True, nogil=True)
def _fill_gaps(half, z, centre, gaps):
    t = math.atan2(z.imag, z.real)
    along = 1 + z if z.real > 0 else 1j * math.copysign(1, t) * (1 - z)
    opposite = (centre * along).real < 0
    if opposite and abs(t) <= TURN / 3:
        middle = TURN / 2 - half
        gaps[0], gaps[1], gaps[2] = middle - 1.5 * t, middle + 1.5 * t, 2 * half
        return SPLIT
    if opposite:
        t -= math.copysign(TURN, t)
    far = 1.5 * abs(t) - half
    gaps[2] = TURN - 2 * half - far
    if t < 0:
        gaps[0], gaps[1] = 2 * half, far
        return BELOW
    gaps[0], gaps[1] = far, 2 * half
    return ABOVE


@njit(cache=True, nogil=True)
def angles_of(gaps, angles):
    """Fills angles of sum zero from the differences of consecutive ones."""
    if len(angles) == 2:
        angles[0], angles[1] = gaps[0] / 2, -gaps[0] / 2
    else:
        a, b = gaps[0], gaps[1]
        angles[0], angles[1], angles[2] = (2 * a + b) / 3, (b - a) / 3, -(a + 2 * b) / 3


@njit(cache=True, nogil=True)
def add_polynomial(out, coefficients, powers):
    """Adds the polynomial in A."""
    for i in range(len(out)):
        for j in range(len(out)):
            for k in range(3):
                out[i, j] += coefficients[k] * powers[k, i, j]


@njit(cache=True, nogil=True)
def add_projectors(out, values, powers, projectors):
    """Adds projectors times the values that belong to single, upper and lower."""
    mean, half = (values[1] + values[2]) / 2, (values[1] - values[2]) / 2
    coefficients = np.empty(3, np.complex128)
    for k in range(3):
        coefficients[k] = (values[0] - mean) * projectors[0, k] + half * projectors[1, k]
    coefficients[0] += mean
    add_polynomial(out, coefficients, powers)


@njit(cache=True, nogil=True)
def trace_product(A, B):
    """Returns tr A B."""
    total = 0j
    for i in range(len(A)):
        for j in range(len(A)):
            total += A[i, j] * B[j, i]
    return total
