"""The spectral map on NVIDIA GPUs: Triton, one matrix per element of a block; see spectral.c."""

import triton
import triton.language as tl
from torch import Tensor

from pipeline_kernels.su3 import matrices_cuda as mat
from pipeline_kernels.su3.angles_cuda import (
    TURN,
    angles_of,
    decompose,
    from_angles,
    launch,
    load_numbers,
    polynomial,
    projected,
    sin_cos,
    store_numbers,
    to_angles,
)
from pipeline_kernels.su3.matrices_cuda import (
    adjoint,
    multiple,
    own_rows,
    plus,
    plus_scalar,
    scaled,
    times,
    times_i,
    trace,
    trace_times,
)
from pipeline_kernels.su3.splines import n_bins
from pipeline_kernels.su3.splines_cuda import evaluate, evaluate_back, find, scaling


def spectral_map(L: Tensor, parameters: Tensor, inverse: bool) -> tuple[Tensor, Tensor]:
    """Implements `reference.spectral_map`."""
    W, log_det = L.new_empty(L.shape), parameters.new_empty(L.shape[0])
    launch(_map, [L, parameters], [W, log_det], n_bins(parameters.shape[2]), inverse)
    return W, log_det


def spectral_gradient(
    L: Tensor, parameters: Tensor, by_W: Tensor, by_log_det: Tensor, inverse: bool
) -> tuple[Tensor, Tensor]:
    """Implements `reference.gradient`."""
    by_L, by_parameters = L.new_empty(L.shape), parameters.new_empty(parameters.shape)
    inputs = [L, parameters, by_W, by_log_det]
    launch(_gradient, inputs, [by_L, by_parameters], n_bins(parameters.shape[2]), inverse)
    return by_L, by_parameters


@triton.jit
def _map(
    inputs,
    results,
    total,
    N: tl.constexpr,
    NOISE: tl.constexpr,
    BINS: tl.constexpr,
    INVERSE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    a, square, gaps, places, _, _, polynomials, _ = decompose(
        mat.load(inputs[0], total, N, BLOCK), NOISE
    )
    row = tl.minimum(own_rows(BLOCK), total - 1) * ((N - 1) * (3 * BINS + 1))
    splines, _, changes = _moved(gaps, inputs[1], row, BINS, INVERSE)
    _, W = _rotation(gaps, changes, places, polynomials, N)
    one = tl.full((BLOCK,), 1.0, tl.float64)
    mat.store(results[0], plus_scalar(polynomial(a, square, W), one, 0.0), total, BLOCK)
    product = splines[0][2][2]
    if N == 3:
        product = product * splines[1][2][2] * (splines[0][2][0] + 1)
    for k in tl.static_range(1 if N == 2 else 3):
        before, after, _ = _halves(gaps, changes, k)
        ratio = sin_cos(after)[0] / sin_cos(before)[0]
        product *= ratio * ratio
    store_numbers(results[1], (tl.log(product),), total, BLOCK)


@triton.jit
def _gradient(
    inputs,
    results,
    total,
    N: tl.constexpr,
    NOISE: tl.constexpr,
    BINS: tl.constexpr,
    INVERSE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    a, square, gaps, places, pair, single, polynomials, rest = decompose(
        mat.load(inputs[0], total, N, BLOCK), NOISE
    )
    F = mat.load(inputs[2], total, N, BLOCK)
    f = load_numbers(inputs[3], 1, total, BLOCK)[0]
    row = tl.minimum(own_rows(BLOCK), total - 1) * ((N - 1) * (3 * BINS + 1))
    splines, growths, changes = _moved(gaps, inputs[1], row, BINS, INVERSE)
    phases, W = _rotation(gaps, changes, places, polynomials, N)
    parts = _components(a, square, polynomials, F)
    turns = to_angles(
        places,
        _imaginary(phases[0], parts[0]),
        _imaginary(phases[1], parts[1]),
        _imaginary(phases[2], parts[2]),
        N,
    )
    by = _sines_back(gaps, growths, changes, 2 * f, _changes_back(turns, gaps, growths))
    out = (results[1] + row, own_rows(BLOCK) < total)
    by_gaps = _splines_back(gaps, splines, f, by, out, BINS, INVERSE)
    one = tl.where(rest[2], 0.0, by_gaps[0])
    g = (one, -one)
    if N == 3:
        two = tl.where(rest[2], 0.0, by_gaps[1])
        g = (one, two - one, -two)
    spectrum = (places, pair, single, rest)
    found = _matrix_back(a, square, polynomials, W, F, parts, spectrum, g)
    mat.store(results[0], found, total, BLOCK)


@triton.jit
def _box(gaps, i: tl.constexpr):
    """Returns a box coordinate and its distance from one."""
    if len(gaps) == 2:
        return gaps[0] * (1 / TURN), gaps[1] * (1 / TURN)
    else:  # noqa: RET505
        both = gaps[0] + gaps[1]
        if i == 0:
            return both * (1 / TURN), gaps[2] * (1 / TURN)
        else:  # noqa: RET505
            return gaps[0] / both, gaps[1] / both


@triton.jit
def _moved(gaps, parameters, row, BINS: tl.constexpr, INVERSE: tl.constexpr):
    """Returns scalings, bin, image and xi of each spline, growths and changes of the gaps."""
    splines = ()
    for i in tl.static_range(len(gaps) - 1 if len(gaps) == 3 else 1):
        own = parameters + row + i * (3 * BINS + 1)
        widths, heights, slopes = scaling(own, BINS), scaling(own + BINS, BINS), own + 2 * BINS
        x, complement = _box(gaps, i)
        within = find(widths, heights, slopes, x, complement, BINS, INVERSE)
        image, xi = evaluate(within, x, complement, INVERSE)
        splines = splines + (((widths, heights), within, image, xi),)  # noqa: RUF005
    low, high, _ = splines[0][2]
    if len(gaps) == 2:
        growths = (low, high)
        changes = (gaps[0] * low, gaps[1] * high)
    else:
        r = splines[1][2]
        growths = (low + r[0] + low * r[0], low + r[1] + low * r[1], high)
        changes = (gaps[0] * growths[0], gaps[1] * growths[1], gaps[2] * high)
    return splines, growths, changes


@triton.jit
def _rotation(gaps, changes, places, polynomials, N: tl.constexpr):
    """Returns exp(i theta' - i theta) of single, upper and lower, and the polynomial W - 1."""
    if N == 2:
        half = tl.where(gaps[0] > TURN / 2, -changes[1], changes[0]) / 2
        turn = tl.zeros_like(half)
    else:
        single, _, _ = from_angles(places, angles_of(changes, N))
        split, below = places
        half = tl.where(split, changes[2], tl.where(below, changes[0], changes[1])) / 2
        turn = -single / 2
    sine, cosine = sin_cos(turn)
    mean = (cosine, sine)
    sine, cosine = sin_cos(half)
    side = (cosine, sine)
    upper, lower = scaled(mean, side[0], side[1]), scaled(mean, side[0], -side[1])
    square = scaled(mean, mean[0], mean[1])
    alone = (square[0], -square[1])
    across, middle = multiple(times_i(mean), side[1]), multiple(mean, side[0])
    middle = (middle[0] - 1, middle[1])
    W = scaled(polynomials[1], across[0], across[1])
    if N == 3:
        W = plus(W, scaled(polynomials[0], alone[0] - 1 - middle[0], alone[1] - middle[1]), 1.0)
    return (alone, upper, lower), (W[0] + middle[0], W[1] + middle[1]) + W[2:]  # noqa: RUF005


@triton.jit
def _halves(gaps, changes, k: tl.constexpr):
    """Returns half of a gap, or of all others where these are less, before and after, and which."""
    n: tl.constexpr = len(gaps)
    rest, change = gaps[(k + 1) % n], changes[(k + 1) % n]
    if n == 3:
        rest, change = rest + gaps[(k + 2) % n], change + changes[(k + 2) % n]
    wide = gaps[k] > TURN / 2
    before = tl.where(wide, rest, gaps[k]) / 2
    return before, before + tl.where(wide, change, changes[k]) / 2, wide


@triton.jit
def _curvature(half):
    """Returns the derivative of the logarithm of sin(x / 2) / (x / 2), x = 2 half."""
    square = 4 * half * half
    series = -half / 6 * (square / 60 * (square / 42 + 1) + 1)
    sine, cosine = sin_cos(half)
    return tl.where(square < 1e-3, series, (cosine / sine - 1 / half) / 2)


@triton.jit
def _added(numbers, k: tl.constexpr, more):
    """Returns the numbers with something added to one."""
    out = ()
    for i in tl.static_range(len(numbers)):
        out = out + (numbers[i] + more if i == k else numbers[i],)  # noqa: RUF005
    return out


@triton.jit
def _changes_back(g, gaps, growths):
    """Returns derivatives by gaps, and by growths, through the changes of angles."""
    if len(gaps) == 2:
        a = (g[0] - g[1]) / 2
        return (growths[0] * a, a * 0.0), (gaps[0] * a, a * 0.0)
    else:  # noqa: RET505
        a, b = (2 * g[0] - g[1] - g[2]) / 3, (g[0] + g[1] - 2 * g[2]) / 3
        return (growths[0] * a, growths[1] * b, a * 0.0), (gaps[0] * a, gaps[1] * b, a * 0.0)


@triton.jit
def _part_back(gaps, growths, arcs, i: tl.constexpr, j: tl.constexpr):
    """Returns derivatives of the logarithm of a ratio of sines by one of the gaps in it."""
    before, after, old, new = arcs
    by_gap = new * (growths[i] + 1) - old
    if len(gaps) == 3:
        by_gap += gaps[j] * (growths[i] - growths[j]) / (4 * after * before)
    return by_gap, (0.5 / after + new) * gaps[i]


@triton.jit
def _sines_back(gaps, growths, changes, f, by):
    """Adds derivatives of the logarithms of ratios of sines: as in spectral.c."""
    n: tl.constexpr = len(gaps)
    by_gaps, by_growths = by
    for k in tl.static_range(1 if n == 2 else 3):
        before, after, wide = _halves(gaps, changes, k)
        old, new = _curvature(before), _curvature(after)
        narrow, spread = tl.where(wide, 0.0, f), tl.where(wide, f, 0.0)
        by_growths = _added(by_growths, k, narrow * (1 / (growths[k] + 1) + new * gaps[k]))
        by_gaps = _added(by_gaps, k, narrow * (new * (growths[k] + 1) - old))
        for step in tl.static_range(1, n):
            arcs = (before, after, old, new)
            by_gap, by_growth = _part_back(gaps, growths, arcs, (k + step) % n, (k + n - step) % n)
            by_growths = _added(by_growths, (k + step) % n, spread * by_growth)
            by_gaps = _added(by_gaps, (k + step) % n, spread * by_gap)
    return by_gaps, by_growths


@triton.jit
def _splines_back(gaps, splines, f, by, out, BINS: tl.constexpr, INVERSE: tl.constexpr):
    """Returns derivatives by gaps and stores those by parameters."""
    by_gaps, by_growths = by
    memory, present = out
    if len(gaps) == 2:
        weights = (by_growths[0], by_growths[1], f)
        by_x = evaluate_back(splines[0], _box(gaps, 0), weights, out, BINS, INVERSE)
        return (by_gaps[0] + by_x * (1 / TURN) - by_gaps[1],)
    else:  # noqa: RET505
        s, r = splines[0][2], splines[1][2]
        low = by_growths[0] * (r[0] + 1) + by_growths[1] * (r[1] + 1) + f / (s[0] + 1)
        weights = (low, by_growths[2], f)
        by_x = evaluate_back(splines[0], _box(gaps, 0), weights, out, BINS, INVERSE)
        weights = (by_growths[0] * (s[0] + 1), by_growths[1] * (s[0] + 1), f)
        out = (memory + (3 * BINS + 1), present)
        point = _box(gaps, 1)
        by_r = evaluate_back(splines[1], point, weights, out, BINS, INVERSE)
        both, by_s = by_r / (gaps[0] + gaps[1]), by_x * (1 / TURN) - by_gaps[2]
        return by_gaps[0] + by_s + both * point[1], by_gaps[1] + by_s - both * point[0]


@triton.jit
def _components(a, square, polynomials, F):
    """Returns tr P F for single, upper and lower."""
    whole, first = trace(F), trace_times(a, F)
    single, difference = polynomials
    of_single = (tl.zeros_like(F[0]), tl.zeros_like(F[0]))
    of_difference = plus(
        scaled(whole, difference[0], difference[1]),
        scaled(first, difference[2], difference[3]),
        1.0,
    )
    if len(F) == 18:
        second = trace_times(square, F)
        of_difference = plus(of_difference, scaled(second, difference[4], difference[5]), 1.0)
        of_single = plus(
            scaled(whole, single[0], single[1]), scaled(first, single[2], single[3]), 1.0
        )
        of_single = plus(of_single, scaled(second, single[4], single[5]), 1.0)
    pair = plus(whole, of_single, -1.0)
    upper, lower = plus(pair, of_difference, 1.0), plus(pair, of_difference, -1.0)
    return of_single, multiple(upper, 0.5), multiple(lower, 0.5)


@triton.jit
def _imaginary(a, b):
    """Returns the imaginary part of conj(a) b."""
    return a[0] * b[1] - a[1] * b[0]


@triton.jit
def _diagonal(W, z, x, part, g):
    """Returns i z g less what the polynomial with fixed coefficients has on the diagonal."""
    slope = (W[2], W[3])
    if len(W) == 6:
        slope = plus(slope, scaled((W[4], W[5]), x[0], x[1]), 2.0)
    return plus(multiple(times_i(z), g), scaled(part, slope[0], -slope[1]), -1.0)


@triton.jit
def _matrix_back(a, square, polynomials, W, F, parts, spectrum, g):
    """Returns the derivative by the matrix: as in spectral.c."""
    places, pair, single, rest = spectrum
    of_single, upper, lower = from_angles(places, g)
    side, x = multiple(times_i(rest[1]), rest[0]), single[2:]
    out = scaled(F, W[2], -W[3])
    if len(F) == 18:
        dagger = adjoint(a)
        both = plus(times(F, dagger), times(dagger, F), 1.0)
        out = plus(out, scaled(both, W[4], -W[5]), 1.0)
    diagonal = projected(
        a,
        square,
        polynomials,
        _diagonal(W, single[:2], x, parts[0], of_single),
        _diagonal(W, pair[:2], plus(side, x, -0.5), parts[1], upper),
        _diagonal(W, pair[2:], plus(multiple(side, -1.0), x, -0.5), parts[2], lower),
    )
    return plus(out, diagonal, 1.0)
