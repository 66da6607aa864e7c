"""Eigenangles and projectors in Triton, one matrix per element of a block: as decomposition.c.

A complex number is a pair, a polynomial in A the pairs of its coefficients one after the other.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from pipeline_kernels.su3.matrices_cuda import (
    TINY,
    add_scalar,
    add_scaled,
    arctan2,
    count_colours,
    inner,
    multiply,
    multiply_i,
    scale_complex,
    scale_real,
    select,
    sin_cos,
    trace,
    trace_product,
)

TURN = tl.constexpr(6.28318530717958647693)
SMALLEST = tl.constexpr(1e-30)  # gap


def choose_tolerance(U: Tensor) -> float:
    """Return the relative distance below which eigenvalues of matrices of this type are equal."""
    return 64 * torch.finfo(U.dtype).eps


@triton.jit
def decompose(u, NOISE: tl.constexpr):
    """Decompose the matrices as decomposition.c does.

    Returns A, A^2, gaps; where the single angle is (between the pair, the last); eigenvalues of the
    pair, the single one of the matrix and of A; polynomials of the single projector and the
    difference of the others; sine of half the gap of the pair, its phase, whether all are equal.
    """
    N: tl.constexpr = count_colours(len(u))
    re, im = trace(u)
    m = (re / N, im / N)
    a = add_scalar(u, -m[0], -m[1])
    zero = tl.zeros_like(re)
    if N == 2:
        square = a
        sine, cosine = tl.sqrt(0.5 * inner(a, a)[0]), m[0]
        half, phase = arctan2(sine, cosine), (zero + 1, zero)
        gaps = (2 * half, -2 * half + TURN)
        places, close = (zero > 0, zero > 0), zero > 0
        single, eigenvalues = (zero, zero, zero, zero), (zero, zero, zero, zero)
        block = (zero, zero, zero + 1, zero)
    else:
        square = multiply(a, a)
        x, single, close = _find_single(a, square, NOISE)
        block = scale_complex(single, -1.5 * x[0], -1.5 * x[1])
        block = add_scaled(block, (x[0], x[1], zero + 2, zero, zero, zero), 0.5)
        rest = evaluate_polynomial(a, square, block)
        sine = tl.sqrt(0.5 * inner(rest, rest)[0])
        centre, z = add_scaled(m, x, -0.5), add_scaled(m, x, 1.0)
        cosine = _absolute(centre)
        half, phase = arctan2(sine, cosine), scale_real(centre, 1 / cosine)
        t, z = arctan2(z[1], z[0]), scale_real(z, 1 / _absolute(z))
        gaps, places = _compute_gaps(half, t, z, centre)
        eigenvalues = (z[0], z[1], x[0], x[1])
    none = (sine < TINY) | close
    scale = tl.where(none, 0.0, 1 / tl.maximum(sine, TINY))
    difference = scale_complex(block, -scale * phase[1], -scale * phase[0])
    along, across = scale_real(phase, cosine), scale_real(multiply_i(phase), sine)
    pair = add_scaled(along, across, 1.0) + add_scaled(along, across, -1.0)
    gaps = _clamp(gaps, SMALLEST)
    return a, square, gaps, places, pair, eigenvalues, (single, difference), (sine, phase, close)


@triton.jit
def _absolute(a):
    return tl.sqrt(a[0] * a[0] + a[1] * a[1])


@triton.jit
def _clamp(numbers, least):
    out = ()
    for i in tl.static_range(len(numbers)):
        out = out + (tl.maximum(numbers[i], least),)  # noqa: RUF005
    return out


@triton.jit
def _find_single(a, square, NOISE: tl.constexpr):
    """Return the eigenvalue of A opposite to the closest pair, its projector, if all are equal."""
    re, im = trace(square)
    p = (re / 6, im / 6)
    cube = _compute_cube(a, square, re, im)
    length = tl.maximum(_absolute(cube), TINY)
    sine, cosine = sin_cos(arctan2(cube[1], cube[0]) / 3)
    r = tl.exp(tl.log(length) / 3)
    r = r - (r * r * r - length) / (3 * r * r)
    x = (r * cosine, r * sine)
    y = scale_real(scale_complex(p, x[0], -x[1]), 1 / (r * r))
    root, side = add_scaled(x, y, 1.0), multiply_i(add_scaled(x, y, -1.0))
    half, side = scale_real(root, -0.5), scale_real(side, 0.86602540378443864676)
    for sign in tl.static_range(-1, 2, 2):
        other = add_scaled(half, side, sign)
        farther = _measure_distance(other, p) > _measure_distance(root, p)
        root = select(farther, other, root)
    slope = add_scaled(scale_real(scale_complex(root, root[0], root[1]), 3.0), p, -3.0)
    norm = slope[0] * slope[0] + slope[1] * slope[1]
    close = norm < NOISE * NOISE * NOISE * NOISE
    zero = tl.zeros_like(r)
    top = scale_real((slope[0], -slope[1]), 1 / tl.where(close, 1.0, norm))
    top = select(close, (zero, zero), top)
    constant = add_scaled(scale_complex(root, root[0], root[1]), p, -3.0)
    constant = select(close, (zero + 1.0 / 3, zero), scale_complex(constant, top[0], top[1]))
    root = select(close, (zero, zero), root)
    return root, constant + scale_complex(root, top[0], top[1]) + top, close


@triton.jit
def _compute_cube(a, square, re, im):
    """Return q + s or q - s, the larger one, for s = sqrt(q^2 - p^3): see decomposition.c."""
    norm, _ = inner(a, a)
    x, y = inner(a, square)
    scale = -1 / tl.maximum(norm, TINY)
    rest = add_scalar(square, -re / 3, -im / 3)
    rest = add_scaled(rest, scale_complex(a, scale * x, scale * y), 1.0)
    s = tl.sqrt(norm * inner(rest, rest)[0]) / 6
    x, y = trace_product(a, square)
    return x / 6 + tl.where(x < 0, -s, s), y / 6


@triton.jit
def _measure_distance(x, p):
    """Return the squared product of distances from the other roots, over 9."""
    d = add_scaled(scale_complex(x, x[0], x[1]), p, -1.0)
    return d[0] * d[0] + d[1] * d[1]


@triton.jit
def _compute_gaps(half, t, z, centre):
    """Return gaps, and where the single angle is: see decomposition.py."""
    sign = tl.where(t < 0, -1.0, 1.0)
    ahead = z[0] > 0
    along = (tl.where(ahead, 1 + z[0], sign * z[1]), tl.where(ahead, z[1], sign * (1 - z[0])))
    opposite = centre[0] * along[0] < centre[1] * along[1]
    split = opposite & (tl.abs(t) <= TURN / 3)
    other = tl.where(t < 0, t + TURN, t - TURN)
    t = tl.where(opposite & (tl.abs(t) > TURN / 3), other, t)
    below, far, near = t < 0, 1.5 * tl.abs(t) - half, 2 * half
    middle = -half + TURN / 2
    first = tl.where(split, middle - 1.5 * t, tl.where(below, near, far))
    second = tl.where(split, middle + 1.5 * t, tl.where(below, far, near))
    return (first, second, tl.where(split, near, -(near + far) + TURN)), (split, below)


@triton.jit
def compute_angles(gaps, N: tl.constexpr):
    """Return angles of sum zero from the differences of consecutive ones."""
    if N == 2:
        return gaps[0] / 2, -gaps[0] / 2
    else:  # noqa: RET505
        a, b = gaps[0], gaps[1]
        return (2 * a + b) / 3, (b - a) / 3, -(a + 2 * b) / 3


@triton.jit
def gather_from_angles(places, x):
    """Return the numbers of the single, upper and lower angle from the order of angles."""
    split, below = places
    if len(x) == 2:
        return tl.zeros_like(x[0]), x[0], x[1]
    else:  # noqa: RET505
        single = tl.where(split, x[1], tl.where(below, x[2], x[0]))
        upper = tl.where(split, x[2], tl.where(below, x[0], x[1]))
        return single, upper, tl.where(split, x[0], tl.where(below, x[1], x[2]))


@triton.jit
def scatter_to_angles(places, single, upper, lower, N: tl.constexpr):
    """Return numbers of single, upper and lower angle in the order of angles."""
    split, below = places
    if N == 2:
        return upper, lower
    else:  # noqa: RET505
        first = tl.where(split, lower, tl.where(below, upper, single))
        second = tl.where(split, single, tl.where(below, lower, upper))
        return first, second, tl.where(split, upper, tl.where(below, single, lower))


@triton.jit
def evaluate_polynomial(a, square, p):
    """Return the polynomial in A."""
    out = scale_complex(a, p[2], p[3])
    if len(a) == 18:
        out = add_scaled(out, scale_complex(square, p[4], p[5]), 1.0)
    return add_scalar(out, p[0], p[1])


@triton.jit
def combine_projectors(a, square, polynomials, single, upper, lower):
    """Return projectors times the numbers of single, upper and lower."""
    mean = scale_real(add_scaled(upper, lower, 1.0), 0.5)
    half = scale_real(add_scaled(upper, lower, -1.0), 0.5)
    p = scale_complex(polynomials[1], half[0], half[1])
    if len(a) == 18:
        rest = add_scaled(single, mean, -1.0)
        p = add_scaled(p, scale_complex(polynomials[0], rest[0], rest[1]), 1.0)
    return add_scalar(evaluate_polynomial(a, square, p), mean[0], mean[1])
