"""The spectral map on NVIDIA GPUs: Triton, one matrix per element of a block; see native.c."""

import triton
import triton.language as tl
from torch import Tensor

from pipeline_kernels.su3 import matrices_cuda as mat
from pipeline_kernels.su3.matrices_cuda import (
    add_scalar,
    add_scaled,
    adjoint,
    find_rows,
    launch,
    load_numbers,
    multiply,
    multiply_i,
    scale_complex,
    scale_real,
    sin_cos,
    trace,
    trace_product,
)
from pipeline_kernels.su3.spectral.decomposition_cuda import (
    TURN,
    choose_tolerance,
    combine_projectors,
    compute_angles,
    decompose,
    evaluate_polynomial,
    gather_from_angles,
    scatter_to_angles,
)
from pipeline_kernels.su3.splines import count_bins
from pipeline_kernels.su3.splines.cuda import evaluate_spline, find_bin, pull_spline, scale_bins


def spectral_map(L: Tensor, parameters: Tensor, inverse: bool) -> tuple[Tensor, Tensor]:
    """Implement `reference.spectral_map`."""
    W, log_det = L.new_empty(L.shape), parameters.new_empty(L.shape[0])
    constants = choose_tolerance(L), count_bins(parameters.shape[2]), inverse
    launch(_map_matrices, [L, parameters], [W, log_det], *constants)
    return W, log_det


def spectral_gradient(
    L: Tensor, parameters: Tensor, by_W: Tensor, by_log_det: Tensor, inverse: bool
) -> tuple[Tensor, Tensor]:
    """Implement `reference.spectral_gradient`."""
    by_L, by_parameters = L.new_empty(L.shape), parameters.new_empty(parameters.shape)
    inputs = [L, parameters, by_W, by_log_det]
    constants = choose_tolerance(L), count_bins(parameters.shape[2]), inverse
    launch(_differentiate_map, inputs, [by_L, by_parameters], *constants)
    return by_L, by_parameters


@triton.jit
def _map_matrices(
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
    row = tl.minimum(find_rows(BLOCK), total - 1) * ((N - 1) * (3 * BINS + 1))
    splines, _, changes = _move_gaps(gaps, inputs[1], row, BINS, INVERSE)
    _, W = _compute_rotation(gaps, changes, places, polynomials, N)
    one = tl.full((BLOCK,), 1.0, tl.float64)
    mat.store(results[0], add_scalar(evaluate_polynomial(a, square, W), one, 0.0), total, BLOCK)
    product = splines[0][2][2]
    if N == 3:
        product = product * splines[1][2][2] * (splines[0][2][0] + 1)
    for k in tl.static_range(1 if N == 2 else 3):
        before, after, _ = _halve_gap(gaps, changes, k)
        ratio = sin_cos(after)[0] / sin_cos(before)[0]
        product *= ratio * ratio
    mat.store(results[1], (tl.log(product),), total, BLOCK)


@triton.jit
def _differentiate_map(
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
    row = tl.minimum(find_rows(BLOCK), total - 1) * ((N - 1) * (3 * BINS + 1))
    splines, growths, changes = _move_gaps(gaps, inputs[1], row, BINS, INVERSE)
    phases, W = _compute_rotation(gaps, changes, places, polynomials, N)
    parts = _compute_components(a, square, polynomials, F)
    turns = scatter_to_angles(
        places,
        _imaginary(phases[0], parts[0]),
        _imaginary(phases[1], parts[1]),
        _imaginary(phases[2], parts[2]),
        N,
    )
    by = _pull_sines(gaps, growths, changes, 2 * f, _pull_changes(turns, gaps, growths))
    out = (results[1] + row, find_rows(BLOCK) < total)
    by_gaps = _pull_splines(gaps, splines, f, by, out, BINS, INVERSE)
    one = tl.where(rest[2], 0.0, by_gaps[0])
    g = (one, -one)
    if N == 3:
        two = tl.where(rest[2], 0.0, by_gaps[1])
        g = (one, two - one, -two)
    spectrum = (places, pair, single, rest)
    by_L = _pull_matrix(a, square, polynomials, W, F, parts, spectrum, g)
    mat.store(results[0], by_L, total, BLOCK)


@triton.jit
def _compute_box(gaps, i: tl.constexpr):
    """Return a box coordinate and its distance from one."""
    if len(gaps) == 2:
        return gaps[0] * (1 / TURN), gaps[1] * (1 / TURN)
    else:  # noqa: RET505
        both = gaps[0] + gaps[1]
        if i == 0:
            return both * (1 / TURN), gaps[2] * (1 / TURN)
        else:  # noqa: RET505
            return gaps[0] / both, gaps[1] / both


@triton.jit
def _move_gaps(gaps, parameters, row, BINS: tl.constexpr, INVERSE: tl.constexpr):
    """Return scalings, bin, image and xi of each spline, growths and changes of the gaps."""
    splines = ()
    for i in tl.static_range(len(gaps) - 1 if len(gaps) == 3 else 1):
        own = parameters + row + i * (3 * BINS + 1)
        widths, heights = scale_bins(own, BINS), scale_bins(own + BINS, BINS)
        x, complement = _compute_box(gaps, i)
        within = find_bin(widths, heights, own + 2 * BINS, x, complement, BINS, INVERSE)
        image, xi = evaluate_spline(within, x, complement, INVERSE)
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
def _compute_rotation(gaps, changes, places, polynomials, N: tl.constexpr):
    """Return exp(i theta' - i theta) of single, upper and lower, and the polynomial W - 1."""
    if N == 2:
        half = tl.where(gaps[0] > TURN / 2, -changes[1], changes[0]) / 2
        turn = tl.zeros_like(half)
    else:
        single, _, _ = gather_from_angles(places, compute_angles(changes, N))
        split, below = places
        half = tl.where(split, changes[2], tl.where(below, changes[0], changes[1])) / 2
        turn = -single / 2
    sine, cosine = sin_cos(turn)
    mean = (cosine, sine)
    sine, cosine = sin_cos(half)
    side = (cosine, sine)
    upper, lower = scale_complex(mean, side[0], side[1]), scale_complex(mean, side[0], -side[1])
    square = scale_complex(mean, mean[0], mean[1])
    alone = (square[0], -square[1])
    across, middle = scale_real(multiply_i(mean), side[1]), scale_real(mean, side[0])
    middle = (middle[0] - 1, middle[1])
    W = scale_complex(polynomials[1], across[0], across[1])
    if N == 3:
        rest = (alone[0] - 1 - middle[0], alone[1] - middle[1])
        W = add_scaled(W, scale_complex(polynomials[0], rest[0], rest[1]), 1.0)
    return (alone, upper, lower), (W[0] + middle[0], W[1] + middle[1]) + W[2:]  # noqa: RUF005


@triton.jit
def _halve_gap(gaps, changes, k: tl.constexpr):
    """Return half of a gap, or of all others where these are less, before and after, and which."""
    n: tl.constexpr = len(gaps)
    rest, change = gaps[(k + 1) % n], changes[(k + 1) % n]
    if n == 3:
        rest, change = rest + gaps[(k + 2) % n], change + changes[(k + 2) % n]
    wide = gaps[k] > TURN / 2
    before = tl.where(wide, rest, gaps[k]) / 2
    return before, before + tl.where(wide, change, changes[k]) / 2, wide


@triton.jit
def _curvature(half):
    """Return the derivative of the logarithm of sin(x / 2) / (x / 2), x = 2 half."""
    square = 4 * half * half
    series = -half / 6 * (square / 60 * (square / 42 + 1) + 1)
    sine, cosine = sin_cos(half)
    return tl.where(square < 1e-3, series, (cosine / sine - 1 / half) / 2)


@triton.jit
def _add_to(numbers, k: tl.constexpr, more):
    """Return the numbers with something added to one."""
    out = ()
    for i in tl.static_range(len(numbers)):
        out = out + (numbers[i] + more if i == k else numbers[i],)  # noqa: RUF005
    return out


@triton.jit
def _pull_changes(g, gaps, growths):
    """Return derivatives by gaps, and by growths, through the changes of angles."""
    if len(gaps) == 2:
        a = (g[0] - g[1]) / 2
        return (growths[0] * a, a * 0.0), (gaps[0] * a, a * 0.0)
    else:  # noqa: RET505
        a, b = (2 * g[0] - g[1] - g[2]) / 3, (g[0] + g[1] - 2 * g[2]) / 3
        return (growths[0] * a, growths[1] * b, a * 0.0), (gaps[0] * a, gaps[1] * b, a * 0.0)


@triton.jit
def _pull_part(gaps, growths, arcs, i: tl.constexpr, j: tl.constexpr):
    """Return derivatives of the logarithm of a ratio of sines by one of the gaps in it."""
    before, after, old, new = arcs
    by_gap = new * (growths[i] + 1) - old
    if len(gaps) == 3:
        by_gap += gaps[j] * (growths[i] - growths[j]) / (4 * after * before)
    return by_gap, (0.5 / after + new) * gaps[i]


@triton.jit
def _pull_sines(gaps, growths, changes, f, by):
    """Add derivatives of the logarithms of ratios of sines: as in native.c."""
    n: tl.constexpr = len(gaps)
    by_gaps, by_growths = by
    for k in tl.static_range(1 if n == 2 else 3):
        before, after, wide = _halve_gap(gaps, changes, k)
        old, new = _curvature(before), _curvature(after)
        narrow, spread = tl.where(wide, 0.0, f), tl.where(wide, f, 0.0)
        by_growths = _add_to(by_growths, k, narrow * (1 / (growths[k] + 1) + new * gaps[k]))
        by_gaps = _add_to(by_gaps, k, narrow * (new * (growths[k] + 1) - old))
        for step in tl.static_range(1, n):
            arcs = (before, after, old, new)
            by_gap, by_growth = _pull_part(gaps, growths, arcs, (k + step) % n, (k + n - step) % n)
            by_growths = _add_to(by_growths, (k + step) % n, spread * by_growth)
            by_gaps = _add_to(by_gaps, (k + step) % n, spread * by_gap)
    return by_gaps, by_growths


@triton.jit
def _pull_splines(gaps, splines, f, by, out, BINS: tl.constexpr, INVERSE: tl.constexpr):
    """Return derivatives by gaps and stores those by parameters."""
    by_gaps, by_growths = by
    memory, present = out
    if len(gaps) == 2:
        weights = (by_growths[0], by_growths[1], f)
        by_x = pull_spline(splines[0], _compute_box(gaps, 0), weights, out, BINS, INVERSE)
        return (by_gaps[0] + by_x * (1 / TURN) - by_gaps[1],)
    else:  # noqa: RET505
        s, r = splines[0][2], splines[1][2]
        low = by_growths[0] * (r[0] + 1) + by_growths[1] * (r[1] + 1) + f / (s[0] + 1)
        weights = (low, by_growths[2], f)
        by_x = pull_spline(splines[0], _compute_box(gaps, 0), weights, out, BINS, INVERSE)
        weights = (by_growths[0] * (s[0] + 1), by_growths[1] * (s[0] + 1), f)
        out = (memory + (3 * BINS + 1), present)
        point = _compute_box(gaps, 1)
        by_r = pull_spline(splines[1], point, weights, out, BINS, INVERSE)
        both, by_s = by_r / (gaps[0] + gaps[1]), by_x * (1 / TURN) - by_gaps[2]
        return by_gaps[0] + by_s + both * point[1], by_gaps[1] + by_s - both * point[0]


@triton.jit
def _compute_components(a, square, polynomials, F):
    """Return tr P F for single, upper and lower."""
    whole, first = trace(F), trace_product(a, F)
    single, difference = polynomials
    of_single = (tl.zeros_like(F[0]), tl.zeros_like(F[0]))
    of_difference = add_scaled(
        scale_complex(whole, difference[0], difference[1]),
        scale_complex(first, difference[2], difference[3]),
        1.0,
    )
    if len(F) == 18:
        second = trace_product(square, F)
        third = scale_complex(second, difference[4], difference[5])
        of_difference = add_scaled(of_difference, third, 1.0)
        of_single = scale_complex(whole, single[0], single[1])
        of_single = add_scaled(of_single, scale_complex(first, single[2], single[3]), 1.0)
        of_single = add_scaled(of_single, scale_complex(second, single[4], single[5]), 1.0)
    pair = add_scaled(whole, of_single, -1.0)
    upper, lower = add_scaled(pair, of_difference, 1.0), add_scaled(pair, of_difference, -1.0)
    return of_single, scale_real(upper, 0.5), scale_real(lower, 0.5)


@triton.jit
def _imaginary(a, b):
    """Return the imaginary part of conj(a) b."""
    return a[0] * b[1] - a[1] * b[0]


@triton.jit
def _compute_diagonal(W, z, x, part, g):
    """Return i z g less the diagonal of the polynomial with fixed coefficients."""
    slope = (W[2], W[3])
    if len(W) == 6:
        slope = add_scaled(slope, scale_complex((W[4], W[5]), x[0], x[1]), 2.0)
    return add_scaled(scale_real(multiply_i(z), g), scale_complex(part, slope[0], -slope[1]), -1.0)


@triton.jit
def _pull_matrix(a, square, polynomials, W, F, parts, spectrum, g):
    """Return the derivative by the matrix: as in native.c."""
    places, pair, single, rest = spectrum
    of_single, upper, lower = gather_from_angles(places, g)
    side, x = scale_real(multiply_i(rest[1]), rest[0]), single[2:]
    out = scale_complex(F, W[2], -W[3])
    if len(F) == 18:
        dagger = adjoint(a)
        both = add_scaled(multiply(F, dagger), multiply(dagger, F), 1.0)
        out = add_scaled(out, scale_complex(both, W[4], -W[5]), 1.0)
    ahead, behind = add_scaled(side, x, -0.5), add_scaled(scale_real(side, -1.0), x, -0.5)
    diagonal = combine_projectors(
        a,
        square,
        polynomials,
        _compute_diagonal(W, single[:2], x, parts[0], of_single),
        _compute_diagonal(W, pair[:2], ahead, parts[1], upper),
        _compute_diagonal(W, pair[2:], behind, parts[2], lower),
    )
    return add_scaled(out, diagonal, 1.0)
