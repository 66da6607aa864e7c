"""Eigenangles on NVIDIA GPUs: Triton, one matrix per element of a block, as angles.c does.

A complex number is a pair, a polynomial in A the pairs of its coefficients one after the other.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from pipeline_kernels.su3 import matrices_cuda as mat
from pipeline_kernels.su3.matrices_cuda import (
    BLOCK,
    TINY,
    arc,
    colours,
    either,
    inner,
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

TURN = tl.constexpr(6.28318530717958647693)
SMALLEST = tl.constexpr(1e-30)  # gap


def eigenangles(U: Tensor) -> Tensor:
    """Implements `reference.eigenangles`."""
    angles = U.new_empty(U.shape[:-1], dtype=torch.float64)
    launch(_eigenangles, [U], [angles])
    return angles


def angles_gradient(U: Tensor, weights: Tensor) -> Tensor:
    """Implements `reference.angles_gradient`."""
    out = U.new_empty(U.shape)
    launch(_eigenangles_gradient, [U, weights], [out])
    return out


def launch(
    kernel: triton.JITFunction, inputs: list[Tensor], results: list[Tensor], *constants: object
) -> None:
    """Runs a kernel for all matrices: inputs, results, their number, N, noise, constants, BLOCK.

    Args:
        kernel: the kernel.
        inputs: `(n, ...)`, the first complex and `(n, N, N)`.
        results: `(n, ...)`, contiguous; the kernel fills them.
        constants: further arguments.
    """
    total, n_colours = inputs[0].shape[:2]
    if total == 0:
        return
    noise = 64 * torch.finfo(inputs[0].dtype).eps
    inputs = [x.resolve_conj().resolve_neg().contiguous() for x in inputs]
    given, made = (
        tuple(torch.view_as_real(x) if x.is_complex() else x for x in arrays)
        for arrays in (inputs, results)
    )
    with torch.cuda.device_of(inputs[0]):
        kernel[(triton.cdiv(total, BLOCK),)](
            given, made, total, n_colours, noise, *constants, BLOCK
        )


@triton.jit
def _eigenangles(inputs, results, total, N: tl.constexpr, NOISE: tl.constexpr, BLOCK: tl.constexpr):
    s = decompose(mat.load(inputs[0], total, N, BLOCK), NOISE)
    store_numbers(results[0], angles_of(s[2], N), total, BLOCK)


@triton.jit
def _eigenangles_gradient(
    inputs, results, total, N: tl.constexpr, NOISE: tl.constexpr, BLOCK: tl.constexpr
):
    a, square, _, places, pair, single, polynomials, _ = decompose(
        mat.load(inputs[0], total, N, BLOCK), NOISE
    )
    w = load_numbers(inputs[1], N, total, BLOCK)
    mean = (w[0] + w[1]) / N
    if N == 3:
        mean += w[2] / N
    of_single, upper, lower = from_angles(places, w)
    gradient = projected(
        a,
        square,
        polynomials,
        multiple(times_i(single[:2]), of_single - mean),
        multiple(times_i(pair[:2]), upper - mean),
        multiple(times_i(pair[2:]), lower - mean),
    )
    mat.store(results[0], gradient, total, BLOCK)


@triton.jit
def load_numbers(x, COUNT: tl.constexpr, total, BLOCK: tl.constexpr):
    """Loads so many real numbers for each matrix."""
    row = tl.minimum(own_rows(BLOCK), total - 1) * COUNT
    out = ()
    for i in tl.static_range(COUNT):
        out = out + (tl.load(x + row + i),)  # noqa: RUF005
    return out


@triton.jit
def store_numbers(x, numbers, total, BLOCK: tl.constexpr):
    """Stores real numbers of each matrix."""
    row = own_rows(BLOCK)
    for i in tl.static_range(len(numbers)):
        tl.store(x + row * len(numbers) + i, numbers[i], row < total)


@triton.jit
def decompose(u, NOISE: tl.constexpr):
    """Decomposes the matrices as angles.c does.

    Returns A, A^2, gaps; where the single angle is (between the pair, the last); eigenvalues of the
    pair, the single one of the matrix and of A; polynomials of the single projector and the
    difference of the others; sine of half the gap of the pair, its phase, whether all are equal.
    """
    N: tl.constexpr = colours(len(u))
    re, im = trace(u)
    m = (re / N, im / N)
    a = plus_scalar(u, -m[0], -m[1])
    zero = tl.zeros_like(re)
    if N == 2:
        square = a
        sine, cosine = tl.sqrt(0.5 * inner(a, a)[0]), m[0]
        half, phase = arc(sine, cosine), (zero + 1, zero)
        gaps = (2 * half, -2 * half + TURN)
        places, close = (zero > 0, zero > 0), zero > 0
        single, eigenvalues = (zero, zero, zero, zero), (zero, zero, zero, zero)
        block = (zero, zero, zero + 1, zero)
    else:
        square = times(a, a)
        x, single, close = _single(a, square, NOISE)
        block = scaled(single, -1.5 * x[0], -1.5 * x[1])
        block = plus(block, (x[0], x[1], zero + 2, zero, zero, zero), 0.5)
        rest = polynomial(a, square, block)
        sine = tl.sqrt(0.5 * inner(rest, rest)[0])
        centre, z = plus(m, x, -0.5), plus(m, x, 1.0)
        cosine = _size(centre)
        half, phase = arc(sine, cosine), multiple(centre, 1 / cosine)
        t, z = arc(z[1], z[0]), multiple(z, 1 / _size(z))
        gaps, places = _gaps(half, t, z, centre)
        eigenvalues = (z[0], z[1], x[0], x[1])
    none = (sine < TINY) | close
    scale = tl.where(none, 0.0, 1 / tl.maximum(sine, TINY))
    difference = scaled(block, -scale * phase[1], -scale * phase[0])
    along, across = multiple(phase, cosine), multiple(times_i(phase), sine)
    pair = plus(along, across, 1.0) + plus(along, across, -1.0)
    gaps = _at_least(gaps, SMALLEST)
    return a, square, gaps, places, pair, eigenvalues, (single, difference), (sine, phase, close)


@triton.jit
def sin_cos(x):
    """Returns sine and cosine of small numbers as C does (common.c): far less code than tl.sin."""
    k = tl.floor(x * 0.63661977236758134308 + 0.5)
    quadrant = k.to(tl.int32)
    r = x - k * 1.57079632673412561417
    r = r - k * 6.07710050630396597660e-11
    r = r - k * 2.02226624879595063154e-21
    y = r * r
    s = y * 1.5918115263265974e-10 - 2.505113165023518e-08
    s = s * y + 2.7557316101617874e-06
    s = s * y - 0.00019841269836756774
    s = s * y + 0.008333333333330948
    s = s * y - 0.16666666666666666
    s = s * y * r + r
    c = y * -1.1382623647474604e-11 + 2.087614614655861e-09
    c = c * y - 2.7557317271145144e-07
    c = c * y + 2.480158729876456e-05
    c = c * y - 0.0013888888888887398
    c = c * y + 0.041666666666666664
    c = c * y * y + (-0.5 * y + 1)
    odd = (quadrant & 1) != 0
    sine, cosine = tl.where(odd, c, s), tl.where(odd, s, c)
    sine = tl.where((quadrant & 2) != 0, -sine, sine)
    return sine, tl.where(((quadrant + 1) & 2) != 0, -cosine, cosine)


@triton.jit
def _size(a):
    return tl.sqrt(a[0] * a[0] + a[1] * a[1])


@triton.jit
def _at_least(numbers, least):
    out = ()
    for i in tl.static_range(len(numbers)):
        out = out + (tl.maximum(numbers[i], least),)  # noqa: RUF005
    return out


@triton.jit
def _single(a, square, NOISE: tl.constexpr):
    """Returns the eigenvalue of A opposite to the closest pair, its projector, if all are equal."""
    re, im = trace(square)
    p = (re / 6, im / 6)
    cube = _cube(a, square, re, im)
    length = tl.maximum(_size(cube), TINY)
    sine, cosine = sin_cos(arc(cube[1], cube[0]) / 3)
    r = tl.exp(tl.log(length) / 3)
    r = r - (r * r * r - length) / (3 * r * r)
    x = (r * cosine, r * sine)
    y = multiple(scaled(p, x[0], -x[1]), 1 / (r * r))
    found = plus(x, y, 1.0)
    half, side = multiple(found, -0.5), multiple(times_i(plus(x, y, -1.0)), 0.86602540378443864676)
    for sign in tl.static_range(-1, 2, 2):
        other = plus(half, side, sign)
        farther = _distance(other, p) > _distance(found, p)
        found = either(farther, other, found)
    slope = plus(multiple(scaled(found, found[0], found[1]), 3.0), p, -3.0)
    norm = slope[0] * slope[0] + slope[1] * slope[1]
    close = norm < NOISE * NOISE * NOISE * NOISE
    zero = tl.zeros_like(r)
    top = multiple((slope[0], -slope[1]), 1 / tl.where(close, 1.0, norm))
    top = either(close, (zero, zero), top)
    constant = plus(scaled(found, found[0], found[1]), p, -3.0)
    constant = either(close, (zero + 1.0 / 3, zero), scaled(constant, top[0], top[1]))
    found = either(close, (zero, zero), found)
    return found, constant + scaled(found, top[0], top[1]) + top, close


@triton.jit
def _cube(a, square, re, im):
    """Returns q + s or q - s, the larger one, for s = sqrt(q^2 - p^3): see common.c."""
    norm, _ = inner(a, a)
    x, y = inner(a, square)
    scale = -1 / tl.maximum(norm, TINY)
    rest = plus(plus_scalar(square, -re / 3, -im / 3), scaled(a, scale * x, scale * y), 1.0)
    s = tl.sqrt(norm * inner(rest, rest)[0]) / 6
    x, y = trace_times(a, square)
    return x / 6 + tl.where(x < 0, -s, s), y / 6


@triton.jit
def _distance(x, p):
    """Returns the squared product of distances from the other roots, over 9."""
    d = plus(scaled(x, x[0], x[1]), p, -1.0)
    return d[0] * d[0] + d[1] * d[1]


@triton.jit
def _gaps(half, t, z, centre):
    """Returns gaps, and where the single angle is: see angles_reference.py."""
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
def angles_of(gaps, N: tl.constexpr):
    """Returns angles of sum zero from the differences of consecutive ones."""
    if N == 2:
        return gaps[0] / 2, -gaps[0] / 2
    else:  # noqa: RET505
        a, b = gaps[0], gaps[1]
        return (2 * a + b) / 3, (b - a) / 3, -(a + 2 * b) / 3


@triton.jit
def from_angles(places, x):
    """Returns what belongs to single, upper and lower angle of numbers in the order of angles."""
    split, below = places
    if len(x) == 2:
        return tl.zeros_like(x[0]), x[0], x[1]
    else:  # noqa: RET505
        single = tl.where(split, x[1], tl.where(below, x[2], x[0]))
        upper = tl.where(split, x[2], tl.where(below, x[0], x[1]))
        return single, upper, tl.where(split, x[0], tl.where(below, x[1], x[2]))


@triton.jit
def to_angles(places, single, upper, lower, N: tl.constexpr):
    """Returns numbers of single, upper and lower angle in the order of angles."""
    split, below = places
    if N == 2:
        return upper, lower
    else:  # noqa: RET505
        first = tl.where(split, lower, tl.where(below, upper, single))
        second = tl.where(split, single, tl.where(below, lower, upper))
        return first, second, tl.where(split, upper, tl.where(below, single, lower))


@triton.jit
def polynomial(a, square, p):
    """Returns the polynomial in A."""
    out = scaled(a, p[2], p[3])
    if len(a) == 18:
        out = plus(out, scaled(square, p[4], p[5]), 1.0)
    return plus_scalar(out, p[0], p[1])


@triton.jit
def projected(a, square, polynomials, single, upper, lower):
    """Returns projectors times the numbers of single, upper and lower."""
    mean, half = multiple(plus(upper, lower, 1.0), 0.5), multiple(plus(upper, lower, -1.0), 0.5)
    p = scaled(polynomials[1], half[0], half[1])
    if len(a) == 18:
        rest = plus(single, mean, -1.0)
        p = plus(p, scaled(polynomials[0], rest[0], rest[1]), 1.0)
    return plus_scalar(polynomial(a, square, p), mean[0], mean[1])
