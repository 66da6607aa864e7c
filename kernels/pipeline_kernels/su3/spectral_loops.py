"""The routines of spectral.c in numba, where there is no compiler."""

import math

import numpy as np
from numba import njit

from pipeline_kernels.su3.angles_loops import (
    TURN,
    add_polynomial,
    add_projectors,
    angles_of,
    decompose,
    noise_of,
    trace_product,
    workspace,
)
from pipeline_kernels.su3.matrices_loops import trace
from pipeline_kernels.su3.splines_loops import evaluate, evaluate_back, find, normalise


def spectral_map(
    L: np.ndarray,
    parameters: np.ndarray,
    W: np.ndarray,
    log_det: np.ndarray,
    bins: int,
    inverse: bool,
) -> None:
    """Writes W `(n, N, N)` and the log-determinants `(n,)`."""
    found = np.zeros(L.shape, np.complex128)
    arguments = (L.astype(np.complex128), parameters, noise_of(L))
    _map(arguments, (found, log_det), bins, bool(inverse), workspace(L))
    W[:] = found


def spectral_gradient(
    L: np.ndarray,
    parameters: np.ndarray,
    by_W: np.ndarray,
    by_log_det: np.ndarray,
    by_L: np.ndarray,
    by_parameters: np.ndarray,
    bins: int,
    inverse: bool,
) -> None:
    """Writes derivatives by L and parameters."""
    found = np.zeros(L.shape, np.complex128)
    arguments = (L.astype(np.complex128), parameters, noise_of(L))
    weights = (by_W.astype(np.complex128), by_log_det)
    _gradient(arguments, weights, (found, by_parameters), bins, bool(inverse), workspace(L))
    by_L[:] = found


@njit(cache=True, nogil=True)
def _map(arguments, results, bins, inverse, space):
    L, parameters, noise = arguments
    W, log_det = results
    powers, projectors, gaps = space
    rows, moved, n_colours = np.empty(parameters.shape[1:]), np.empty((3, 3)), L.shape[1]
    for n in range(len(L)):
        places, _, _, _, _ = decompose(L[n], noise, powers, projectors, gaps)
        rows[:] = parameters[n]
        _, images = _move(rows, bins, inverse, gaps, moved)
        _, coefficients = _rotate(places, gaps, moved[1], projectors, n_colours)
        coefficients[0] += 1
        add_polynomial(W[n], coefficients, powers)
        log_det[n] = _log_determinant(gaps, moved[1], images, n_colours)


@njit(cache=True, nogil=True)
def _gradient(arguments, weights, results, bins, inverse, space):
    L, parameters, noise = arguments
    by_W, by_log_det = weights
    by_L, by_parameters = results
    powers, projectors, gaps = space
    moved, by, g, n_colours = np.empty((3, 3)), np.empty((2, 3)), np.zeros(3), L.shape[1]
    for n in range(len(L)):
        places, pair, z, x, close = decompose(L[n], noise, powers, projectors, gaps)
        rows, f = by_parameters[n], by_log_det[n]
        rows[:] = parameters[n]
        found, images = _move(rows, bins, inverse, gaps, moved)
        phases, coefficients = _rotate(places, gaps, moved[1], projectors, n_colours)
        parts = _components(by_W[n], powers, projectors)
        for role in range(3):
            g[places[role]] = (np.conj(phases[role]) * parts[role]).imag
        by[:] = 0
        _changes_back(g, gaps, moved[0], by, n_colours)
        _sines_back(gaps, moved, 2 * f, by, n_colours)
        _splines_back(gaps, found, images, f, by, rows, inverse)
        a, b = (0.0, 0.0) if close else (by[0, 0], by[0, 1])
        g[0], g[1], g[2] = (a, -a, 0.0) if n_colours == 2 else (a, b - a, -b)
        values, middle, side = np.zeros(3, np.complex128), -x / 2, (pair[0] - pair[1]) / 2
        own = (x, middle + side, middle - side)
        for role, here in enumerate((z, pair[0], pair[1])):
            slope = coefficients[1] + 2 * coefficients[2] * own[role]
            values[role] = 1j * here * g[places[role]] - np.conj(slope) * parts[role]
        _off_diagonal(by_L[n], by_W[n], powers[1], coefficients)
        add_projectors(by_L[n], values, powers, projectors)


@njit(cache=True, nogil=True)
def _off_diagonal(out, F, A, coefficients):
    """Adds the derivative by A of the polynomial with fixed coefficients."""
    w1, w2 = np.conj(coefficients[1]), np.conj(coefficients[2])
    for i in range(len(F)):
        for j in range(len(F)):
            total = 0j
            for k in range(len(F)):
                total += F[i, k] * np.conj(A[j, k]) + np.conj(A[k, i]) * F[k, j]
            out[i, j] += w1 * F[i, j] + w2 * total


@njit(cache=True, nogil=True)
def _move(rows, bins, inverse, gaps, moved):
    """Fills growths and changes of the gaps; returns bins and images of both splines.

    Leaves bins in the rows. Of SU(2) there is one spline; its image stands for two.
    """
    for row in rows:
        normalise(row[:bins])
        normalise(row[bins : 2 * bins])
    if len(rows) == 1:
        x, rest = gaps[0] / TURN, gaps[1] / TURN
        within = find(rows[0], x, rest, inverse)
        s = evaluate(within, x, rest, inverse)
        moved[0, 0], moved[0, 1], moved[0, 2] = s[0], s[1], 0.0
        other, r = within, s
    else:
        both = gaps[0] + gaps[1]
        within = find(rows[0], both / TURN, gaps[2] / TURN, inverse)
        s = evaluate(within, both / TURN, gaps[2] / TURN, inverse)
        other = find(rows[1], gaps[0] / both, gaps[1] / both, inverse)
        r = evaluate(other, gaps[0] / both, gaps[1] / both, inverse)
        moved[0, 0], moved[0, 1] = s[0] + r[0] + s[0] * r[0], s[0] + r[1] + s[0] * r[1]
        moved[0, 2] = s[1]
    for k in range(3):
        moved[1, k] = gaps[k] * moved[0, k]
    return (within, other), (s, r)


@njit(cache=True, nogil=True)
def _rotate(places, gaps, changes, projectors, n_colours):
    """Returns the phases of single, upper and lower eigenvalue, and W - 1 as a polynomial."""
    single = 0.0
    if n_colours == 2:
        half = (-changes[1] if gaps[0] > TURN / 2 else changes[0]) / 2
    else:
        by = np.empty(3)
        angles_of(changes, by)
        single, half = by[places[0]], changes[(places[0] + 1) % 3] / 2
    mean, turn = np.exp(-0.5j * single), np.exp(1j * half)
    phases = (np.conj(mean) ** 2, mean * turn, mean * np.conj(turn))
    middle = mean * math.cos(half) - 1
    coefficients, side = np.empty(3, np.complex128), 1j * math.sin(half) * mean
    for k in range(3):
        coefficients[k] = side * projectors[1, k] + (phases[0] - 1 - middle) * projectors[0, k]
    coefficients[0] += middle
    return phases, coefficients


@njit(cache=True, nogil=True)
def _pairs(gaps, k, n_colours):
    """Returns the other two gaps of a pair, of SU(2) one of them twice, and how often it counts."""
    if n_colours == 2:
        return 1, 1, 0.0
    return (k + 1) % 3, (k + 2) % 3, 1.0


@njit(cache=True, nogil=True)
def _halves(gaps, changes, k, n_colours):
    """Returns half of the gap, or of all others if that is more than pi, and what it becomes."""
    i, j, twice = _pairs(gaps, k, n_colours)
    if gaps[k] > TURN / 2:
        half = (gaps[i] + twice * gaps[j]) / 2
        return half, half + (changes[i] + twice * changes[j]) / 2
    return gaps[k] / 2, (gaps[k] + changes[k]) / 2


@njit(cache=True, nogil=True)
def _log_determinant(gaps, changes, images, n_colours):
    total, (s, r) = math.log(images[0][2]), images
    if n_colours == 3:
        total += math.log(r[2]) + math.log1p(s[0])
    for k in range(1 if n_colours == 2 else 3):
        before, after = _halves(gaps, changes, k, n_colours)
        total += 2 * math.log(abs(math.sin(after) / math.sin(before)))
    return total


@njit(cache=True, nogil=True)
def _curvature(half):
    """Returns the derivative of the logarithm of `sin(x / 2) / (x / 2)`, x = 2 half."""
    square = 4 * half * half
    if square < 1e-3:
        return -half / 6 * (1 + square / 60 * (1 + square / 42))
    return (1 / math.tan(half) - 1 / half) / 2


@njit(cache=True, nogil=True)
def _sines_back(gaps, moved, f, by, n_colours):
    """Adds derivatives of the logarithms of the ratios of sines: as in spectral.c."""
    growths = moved[0]
    for k in range(1 if n_colours == 2 else 3):
        before, after = _halves(gaps, moved[1], k, n_colours)
        old, new = _curvature(before), _curvature(after)
        if gaps[k] <= TURN / 2:
            by[1, k] += f * (1 / (1 + growths[k]) + new * gaps[k])
            by[0, k] += f * (new * (1 + growths[k]) - old)
            continue
        i, j, twice = _pairs(gaps, k, n_colours)
        ends = ((i, j, 1.0), (j, i, twice))
        for one, other, weight in ends:
            part = gaps[other] * (growths[one] - growths[other]) / (4 * after * before)
            by[1, one] += weight * f * (0.5 / after + new) * gaps[one]
            by[0, one] += weight * f * (new * (1 + growths[one]) - old + part)


@njit(cache=True, nogil=True)
def _changes_back(g, gaps, growths, by, n_colours):
    """Adds what derivatives by the changes of angles mean for gaps and their growths."""
    a = (g[0] - g[1]) / 2 if n_colours == 2 else (2 * g[0] - g[1] - g[2]) / 3
    b = 0.0 if n_colours == 2 else (g[0] + g[1] - 2 * g[2]) / 3
    by[0, 0] += growths[0] * a
    by[0, 1] += growths[1] * b
    by[1, 0] += gaps[0] * a
    by[1, 1] += gaps[1] * b


@njit(cache=True, nogil=True)
def _splines_back(gaps, bins_found, images, f, by, rows, inverse):
    """Adds derivatives by gaps through the splines, and puts those by parameters in the rows."""
    s, r = images
    if len(rows) == 1:
        x, rest, weights = gaps[0], gaps[1], (by[1, 0], by[1, 1], f)
    else:
        x, rest = gaps[0] + gaps[1], gaps[2]
        low = by[1, 0] * (1 + r[0]) + by[1, 1] * (1 + r[1]) + f / (1 + s[0])
        weights = (low, by[1, 2], f)
    by_x = evaluate_back(bins_found[0], s, x / TURN, rest / TURN, weights, inverse, rows[0]) / TURN
    if len(rows) == 1:
        by[0, 0] += by_x - by[0, 1]
        return
    a, b = gaps[0] / x, gaps[1] / x
    own = (by[1, 0] * (1 + s[0]), by[1, 1] * (1 + s[0]), f)
    by_r = evaluate_back(bins_found[1], r, a, b, own, inverse, rows[1]) / x
    by[0, 0] += by_x - by[0, 2] + by_r * b
    by[0, 1] += by_x - by[0, 2] - by_r * a


@njit(cache=True, nogil=True)
def _components(F, powers, projectors):
    """Returns tr P F for single, upper and lower."""
    single, difference, one = 0j, 0j, trace(F)
    for k in range(3):
        part = trace_product(powers[k], F)
        single += projectors[0, k] * part
        difference += projectors[1, k] * part
    return single, (one - single + difference) / 2, (one - single - difference) / 2
