"""Exponential and logarithm on NVIDIA GPUs: Triton, by the formulas of exponential.c."""

import triton
import triton.language as tl
from torch import Tensor

from pipeline_kernels.su3 import matrices_cuda as mat
from pipeline_kernels.su3.matrices_cuda import (
    TINY,
    adjoint,
    arc,
    cofactors,
    determinant,
    hermitian_part,
    inner,
    launch,
    multiple,
    multiplied,
    over_sine,
    plus,
    plus_scalar,
    scaled,
    times,
    times_i,
    trace,
    trace_times,
)

TERMS = tl.constexpr(20)  # of a Taylor series, for eigenvalues up to 1
MAX_HALVINGS = tl.constexpr(60)
TURN = tl.constexpr(6.28318530717958647693)


def exponential(A: Tensor) -> Tensor:
    """Implements `reference.exponential`."""
    out = A.new_empty(A.shape)
    launch(_exponential, [A, out])
    return out


def exponential_gradient(A: Tensor, G: Tensor) -> Tensor:
    """Implements `reference.exponential_gradient`."""
    out = A.new_empty(A.shape)
    launch(_exponential_gradient, [A, G, out])
    return out


def logarithm(U: Tensor) -> Tensor:
    """Implements `reference.logarithm`."""
    out = U.new_empty(U.shape)
    launch(_logarithm, [U, out])
    return out


def logarithm_gradient(A: Tensor, U: Tensor, G: Tensor) -> Tensor:
    """Implements `reference.logarithm_gradient`."""
    out = U.new_empty(U.shape)
    launch(_logarithm_gradient, [A, U, G, out])
    return out


@triton.jit
def _exponential(a, out, total, N: tl.constexpr, BLOCK: tl.constexpr):
    h = hermitian_part(mat.load(a, total, N, BLOCK))
    square = times(h, h)
    f = _exponential_coefficients(_invariants(h, square), False)[0]
    mat.store(out, _polynomial(f, h, square), total, BLOCK)


@triton.jit
def _exponential_gradient(a, g, out, total, N: tl.constexpr, BLOCK: tl.constexpr):
    h = hermitian_part(mat.load(a, total, N, BLOCK))
    square = times(h, h)
    by = _exponential_coefficients(_invariants(h, square), True)
    f = by[0]
    g = adjoint(mat.load(g, total, N, BLOCK))
    found = _hermitian(scaled(g, f[2], f[3]))
    if N == 3:
        part = times(h, _hermitian(scaled(g, f[4], f[5])))
        found = plus(found, plus(part, adjoint(part), 1.0), 1.0)
        found = plus(found, square, _along(g, by[1], h, square))
        found = plus(found, h, _along(g, by[2], h, square))
    else:
        found = plus(found, h, _along(g, by[1], h, square))
    mean, _ = trace(found)
    found = times_i(plus_scalar(found, -mean / N, tl.zeros_like(mean)))
    mat.store(out, found, total, BLOCK)


@triton.jit
def _hermitian(a):
    return multiple(plus(a, adjoint(a), 1.0), 0.5)


@triton.jit
def _along(g, f, h, square):
    """Returns the real part of `tr g (f0 + f1 h + f2 h^2)`."""
    re, im = trace(g)
    x, y = trace_times(g, h)
    total = f[0] * re - f[1] * im + f[2] * x - f[3] * y
    if len(f) == 6:
        x, y = trace_times(g, square)
        total += f[4] * x - f[5] * y
    return total


@triton.jit
def _polynomial(f, h, square):
    """Returns `f0 + f1 h + f2 h^2`, where f are pairs of numbers."""
    out = plus_scalar(scaled(h, f[2], f[3]), f[0], f[1])
    if len(f) == 6:
        out = plus(out, scaled(square, f[4], f[5]), 1.0)
    return out


@triton.jit
def _invariants(h, square):
    """Returns c of `h^N = c[0] + .. + c[N-2] h^(N-2)`."""
    norm, _ = trace(square)
    if len(h) == 8:
        return (0.5 * norm,)
    else:  # noqa: RET505 -- a branch of the compiler
        det, _ = determinant(h, cofactors(h))
        return det, 0.5 * norm


@triton.jit
def _exponential_coefficients(c, DERIVATIVES: tl.constexpr):
    """Returns those of exp(i h) as a polynomial of h, then their derivatives by each invariant."""
    N: tl.constexpr = len(c) + 1
    bound = c[N - 2] * (4.0 / 3 if N == 3 else 1.0)
    halvings = tl.zeros_like(bound)
    most = 0
    while (most < MAX_HALVINGS) & (tl.max(bound, 0) > 1):
        large = bound > 1
        bound = tl.where(large, 0.25 * bound, bound)
        halvings += tl.where(large, 1.0, 0.0)
        c = _rescaled(c, tl.where(large, 0.5, 1.0))
        most += 1
    zero = tl.zeros_like(bound)
    f = (zero + 1, zero) + (zero,) * (2 * N - 2)
    by_first = (zero,) * (2 * N)
    by_second = (zero,) * (2 * N)
    for step in range(TERMS):
        factor = 1.0 / (zero + (TERMS - step))  # f = 1 + i h f / k
        if DERIVATIVES:
            by_first = _risen(by_first, c, f, 0, factor)
            if N == 3:
                by_second = _risen(by_second, c, f, 1, factor)
        f = _risen(f, c, f, N, factor)
        f = (f[0] + 1,) + f[1:]  # noqa: RUF005
    while most > 0:
        large = halvings >= most
        full = _product(f, f)
        if DERIVATIVES:
            by_first = mat.either(large, _reduced(_product(f, by_first), c, full, 0), by_first)
            if N == 3:
                twice = _product(f, by_second)
                by_second = mat.either(large, _reduced(twice, c, full, 1), by_second)
        f = mat.either(large, _reduced(multiple(full, 0.5), c, full, N), f)
        scale = tl.where(large, 0.5, 1.0)
        f = _coefficients_rescaled(f, scale, 0)
        by_first = _coefficients_rescaled(by_first, scale, N)
        by_second = _coefficients_rescaled(by_second, scale, N - 1)
        c = _rescaled(c, 1 / scale)
        most -= 1
    return f, by_first, by_second


@triton.jit
def _rescaled(c, factor):
    """Returns the invariants of `factor h`."""
    if len(c) == 1:
        return (c[0] * factor * factor,)
    else:  # noqa: RET505 -- a branch of the compiler
        return c[0] * factor * factor * factor, c[1] * factor * factor


@triton.jit
def _coefficients_rescaled(f, factor, DEGREE: tl.constexpr):
    """Returns those of powers of `h / factor`; a derivative by an invariant has its degree."""
    scale = tl.zeros_like(factor) + 1
    for _ in tl.static_range(DEGREE):
        scale *= factor
    out = ()
    for i in tl.static_range(len(f) // 2):
        out = out + (f[2 * i] * scale, f[2 * i + 1] * scale)  # noqa: RUF005
        scale *= factor
    return out


@triton.jit
def _risen(f, c, own, j: tl.constexpr, factor):
    """Returns `factor i (h f + own[N-1] h^j)`; no second term for j = N."""
    N: tl.constexpr = len(c) + 1
    out = ()
    for m in tl.static_range(N):
        re, im = tl.zeros_like(factor * f[0]), tl.zeros_like(factor * f[0])
        if m > 0:
            re += f[2 * m - 2]
            im += f[2 * m - 1]
        if m < N - 1:
            re += c[m] * f[2 * N - 2]
            im += c[m] * f[2 * N - 1]
        if m == j:
            re += own[2 * N - 2]
            im += own[2 * N - 1]
        out = out + (-factor * im, factor * re)  # noqa: RUF005
    return out


@triton.jit
def _product(f, g):
    """Returns twice the product of two polynomials, of degree 2 N - 2."""
    N: tl.constexpr = len(f) // 2
    out = ()
    for k in tl.static_range(2 * N - 1):
        re, im = tl.zeros_like(f[0]), tl.zeros_like(f[0])
        for a in tl.static_range(N):
            if a <= k and k - a < N:
                x, y = multiplied(f[2 * a], f[2 * a + 1], g[2 * (k - a)], g[2 * (k - a) + 1])
                re += 2 * x
                im += 2 * y
        out = out + (re, im)  # noqa: RUF005
    return out


@triton.jit
def _reduced(p, c, twice, j: tl.constexpr):
    """Lowers the degree of p to N - 1, by `h^N = c[0] + ..`.

    For j < N, p is the derivative by c[j] of half the polynomial `twice`, whose own reduction
    depends on c[j] too.
    """
    N: tl.constexpr = len(c) + 1
    own = multiple(twice, 0.5)
    for step in tl.static_range(N - 1):
        p = _lowered(p, c, own, 2 * N - 2 - step, j)
        own = _lowered(own, c, own, 2 * N - 2 - step, N)
    return p[: 2 * N]


@triton.jit
def _lowered(p, c, own, top: tl.constexpr, j: tl.constexpr):
    """Replaces the highest power, `top`."""
    N: tl.constexpr = len(c) + 1
    for i in tl.static_range(N - 1):
        re, im = c[i] * p[2 * top], c[i] * p[2 * top + 1]
        if i == j:
            re += own[2 * top]
            im += own[2 * top + 1]
        p = _added(p, top - N + i, re, im)
    return p


@triton.jit
def _added(p, at: tl.constexpr, re, im):
    """Returns p with a coefficient changed."""
    out = ()
    for k in tl.static_range(len(p) // 2):
        if k == at:
            out = out + (p[2 * k] + re, p[2 * k + 1] + im)  # noqa: RUF005
        else:
            out = out + (p[2 * k], p[2 * k + 1])  # noqa: RUF005
    return out


@triton.jit
def _logarithm(u, out, total, N: tl.constexpr, BLOCK: tl.constexpr):
    u = mat.load(u, total, N, BLOCK)
    if N == 2:
        h = hermitian_part(u)
        det, _ = determinant(h, cofactors(h))
        re, _ = trace(u)
        found = multiple(h, over_sine(arc(tl.sqrt(tl.maximum(-det, 0.0)), 0.5 * re)))
    else:
        found = hermitian_part(_interpolated(u))
    mat.store(out, times_i(found), total, BLOCK)


@triton.jit
def _interpolated(u):
    """Returns the polynomial of u, without its constant, that is i angle at its eigenvalues."""
    a, c, b = _angles(u)
    slope_x, slope_y = _slope(a, b, c)
    near_a = a - c < c - b
    x, y = _slope(tl.where(near_a, a, b), c, tl.where(near_a, b, a))
    far = tl.where(near_a, b, a)
    p, q = tl.cos(c) - tl.cos(far), tl.sin(c) - tl.sin(far)
    norm = tl.maximum(p * p + q * q, TINY)
    x, y = multiplied(x - slope_x, y - slope_y, p / norm, -q / norm)
    from_a, from_b = plus_scalar(u, -tl.cos(a), -tl.sin(a)), plus_scalar(u, -tl.cos(b), -tl.sin(b))
    return plus(scaled(times(from_a, from_b), x, y), scaled(u, slope_x, slope_y), 1.0)


@triton.jit
def _slope(a, b, c):
    """Returns i (a - b) / (exp(i a) - exp(i b)), c the third angle."""
    size = over_sine(0.5 * (a - b))
    return size * tl.cos(0.5 * c), size * tl.sin(0.5 * c)


@triton.jit
def _angles(u):
    """Returns the angles of SU(3) matrices in the canonical cell: see `unitary_angles` in C."""
    mx, my = trace(u)
    mx, my = mx / 3, my / 3
    a = plus_scalar(u, -mx, -my)
    square = times(a, a)
    px, py = trace(square)
    px, py = px / 6, py / 6
    qx, qy = trace_times(a, square)
    s = _discriminant(a, square)
    qx, qy = qx / 6, qy / 6
    qx += tl.where(qx < 0, -s, s)
    third = arc(qy, qx) / 3
    size = tl.sqrt(qx * qx + qy * qy)
    r = tl.where(size > TINY, tl.exp(tl.log(tl.maximum(size, TINY)) / 3), 0.0)
    x, y = r * tl.cos(third), r * tl.sin(third)
    v, w = multiplied(px, py, x, -y)
    norm = tl.maximum(r * r, TINY)
    v, w = v / norm, w / norm
    root: tl.constexpr = 0.86602540378443864676
    dx, dy = root * (x - v), root * (y - w)
    first = arc(my + y + w, mx + x + v)
    second = arc(my - 0.5 * (y + w) + dx, mx - 0.5 * (x + v) - dy)
    third = arc(my - 0.5 * (y + w) - dx, mx - 0.5 * (x + v) + dy)
    return _canonical(first, second, third)


@triton.jit
def _canonical(a, b, c):
    """Sorts angles, in descending order, after a turn of one of them that makes their sum zero."""
    total = a + b + c
    top, low = tl.maximum(tl.maximum(a, b), c), tl.minimum(tl.minimum(a, b), c)
    middle = tl.maximum(tl.minimum(a, b), tl.minimum(tl.maximum(a, b), c))
    above, below = total > 0.5 * TURN, total < -0.5 * TURN
    first = tl.where(above, middle, tl.where(below, low + TURN, top))
    second = tl.where(above, low, tl.where(below, top, middle))
    third = tl.where(above, top - TURN, tl.where(below, middle, low))
    excess = (first + second + third) / 3
    return first - excess, second - excess, third - excess


@triton.jit
def _discriminant(a, square):
    """Returns the root of `prod |x_i - x_j|^2 / 108` of a normal matrix without a trace."""
    norm, _ = inner(a, a)
    re, im = trace(square)
    rest = plus_scalar(square, -re / 3, -im / 3)
    re, im = inner(a, square)
    f = 1 / tl.maximum(norm, TINY)
    rest = plus(rest, scaled(a, re * f, im * f), -1.0)
    left, _ = inner(rest, rest)
    return tl.sqrt(norm * left) / 6


@triton.jit
def _logarithm_gradient(a, u, g, out, total, N: tl.constexpr, BLOCK: tl.constexpr):
    h = hermitian_part(mat.load(a, total, N, BLOCK))
    y = hermitian_part(mat.load(g, total, N, BLOCK))
    product = times(h, y)
    found = _even_part(h, y, product)
    found = plus(found, times_i(plus(product, adjoint(product), -1.0)), -0.5)
    found = times_i(times(mat.load(u, total, N, BLOCK), found))
    mat.store(out, found, total, BLOCK)


@triton.jit
def _even_part(h, y, product):
    """Multiplies y_ij by x cot x, x = (t_i - t_j) / 2: see `even_part` in C."""
    along, _ = trace(product)
    square = times(h, h)
    norm, _ = trace(square)
    if len(h) == 8:
        norm = 0.5 * norm
        r = tl.sqrt(norm)
        even = over_sine(r) * tl.cos(r)
        along = (1 - even) * along / (2 * tl.maximum(norm, TINY))
        out = plus(multiple(y, even), h, along)
    else:
        a, c, b = _eigenvalues(h, square, norm)
        c1 = 0.5 * norm
        a0, a1, a2 = _even_coefficients(a, b, c, c1)
        out = plus(multiple(y, a0), plus(product, adjoint(product), 1.0), a1)
        out = plus(out, times(product, h), a2)
        second, _ = trace_times(square, y)
        own = a0, a1, a2, c1, along, second
        d0, d1, d2 = _lacking(a, b, c, own)
        e0, e1, e2 = _lacking(b, c, a, own)
        f0, f1, f2 = _lacking(c, a, b, own)
        out = plus(plus(out, square, d2 + e2 + f2), h, d1 + e1 + f1)
        out = plus_scalar(out, d0 + e0 + f0, tl.zeros_like(d0))
    return out


@triton.jit
def _eigenvalues(a, square, norm):
    """Returns those of a Hermitian 3x3 matrix without a trace, in descending order."""
    q, _ = determinant(a, cofactors(a))
    third = arc(_discriminant(a, square), 0.5 * q) / 3
    r = tl.sqrt(norm / 6)
    x, y = r * tl.cos(third), 1.73205080756887729353 * r * tl.sin(third)
    return 2 * x, y - x, -x - y


@triton.jit
def _even_coefficients(a, b, c, c1):
    """Returns what y, `h y + y h` and `h y h` are multiplied by."""
    even_a, even_b = _even(0.5 * (c - b)), _even(0.5 * (a - c))
    ab = (even_a - even_b) / tl.maximum(a - b, TINY)
    near_a = a - c < c - b
    far, gap = tl.where(near_a, b, a), tl.where(near_a, c - b, c - a)
    slope = _even_slope(tl.where(near_a, a, b), c, far)
    a2 = (slope - ab) * gap / tl.maximum(gap * gap, TINY)
    return even_a - ab * a + a2 * (a * b + c1), -(ab + a2 * c), a2


@triton.jit
def _even(x):
    return over_sine(x) * tl.cos(x)


@triton.jit
def _even_slope(p, q, r):
    """Returns the slope of x cot x between x = (r - q) / 2 and (r - p) / 2, by h, for p near q."""
    numerator = tl.sin(1.5 * r) - 1.5 * r / over_sine(0.5 * (p - q))
    return 0.25 * numerator / tl.maximum(tl.sin(0.5 * (r - q)) * tl.sin(0.5 * (r - p)), TINY)


@triton.jit
def _lacking(t, p, q, own):
    """Returns what the diagonal lacks at eigenvalue t, as a polynomial of h; p, q the others."""
    a0, a1, a2, c1, first, second = own
    slope = (t - p) * (t - q)
    size = tl.abs(t - p) + tl.abs(t - q) + tl.abs(p - q)
    apart = tl.abs(slope) > 1e-13 * size * size  # else it lacks nothing
    weight = (1 - (a0 + 2 * a1 * t + a2 * t * t)) * (second + t * first)
    weight = tl.where(apart, weight / tl.where(apart, slope * slope, 1.0), 0.0)
    return weight * (t * t - c1), weight * t, weight
