"""Logarithm on NVIDIA GPUs: Triton, by the formulas of native.c."""

import triton
import triton.language as tl
from torch import Tensor

from pipeline_kernels.su3 import matrices_cuda as mat
from pipeline_kernels.su3.matrices_cuda import (
    TINY,
    add_scalar,
    add_scaled,
    adjoint,
    arctan2,
    cofactors,
    determinant,
    hermitian_part,
    inner,
    inverse_sinc,
    launch,
    multiply,
    multiply_i,
    multiply_numbers,
    scale_complex,
    scale_real,
    trace,
    trace_product,
)

TURN = tl.constexpr(6.28318530717958647693)


def logarithm(U: Tensor) -> Tensor:
    """Implement `reference.logarithm`."""
    out = U.new_empty(U.shape)
    launch(_take_logarithm, [U], [out])
    return out


def logarithm_gradient(U: Tensor, A: Tensor, G: Tensor) -> Tensor:
    """Implement `reference.logarithm_gradient`."""
    out = U.new_empty(U.shape)
    launch(_differentiate_logarithm, [A, U, G], [out])
    return out


@triton.jit
def _take_logarithm(inputs, results, total, N: tl.constexpr, BLOCK: tl.constexpr):
    u = mat.load(inputs[0], total, N, BLOCK)
    if N == 2:
        h = hermitian_part(u)
        det, _ = determinant(h, cofactors(h))
        re, _ = trace(u)
        h = scale_real(h, inverse_sinc(arctan2(tl.sqrt(tl.maximum(-det, 0.0)), 0.5 * re)))
    else:
        h = hermitian_part(_interpolate_angles(u))
    mat.store(results[0], multiply_i(h), total, BLOCK)


@triton.jit
def _interpolate_angles(u):
    """Return the polynomial of u, without its constant, that is i angle at its eigenvalues."""
    a, c, b = _compute_angles(u)
    slope_x, slope_y = _divide_angles(a, b, c)
    near_a = a - c < c - b
    x, y = _divide_angles(tl.where(near_a, a, b), c, tl.where(near_a, b, a))
    far = tl.where(near_a, b, a)
    p, q = tl.cos(c) - tl.cos(far), tl.sin(c) - tl.sin(far)
    norm = tl.maximum(p * p + q * q, TINY)
    x, y = multiply_numbers(x - slope_x, y - slope_y, p / norm, -q / norm)
    from_a, from_b = add_scalar(u, -tl.cos(a), -tl.sin(a)), add_scalar(u, -tl.cos(b), -tl.sin(b))
    second = scale_complex(multiply(from_a, from_b), x, y)
    return add_scaled(second, scale_complex(u, slope_x, slope_y), 1.0)


@triton.jit
def _divide_angles(a, b, c):
    """Return i (a - b) / (exp(i a) - exp(i b)), c the third angle."""
    size = inverse_sinc(0.5 * (a - b))
    return size * tl.cos(0.5 * c), size * tl.sin(0.5 * c)


@triton.jit
def _compute_angles(u):
    """Return the angles of SU(3) matrices in the canonical cell: see `unitary_angles` in C."""
    mx, my = trace(u)
    mx, my = mx / 3, my / 3
    a = add_scalar(u, -mx, -my)
    square = multiply(a, a)
    px, py = trace(square)
    px, py = px / 6, py / 6
    qx, qy = trace_product(a, square)
    s = _compute_discriminant(a, square)
    qx, qy = qx / 6, qy / 6
    qx += tl.where(qx < 0, -s, s)
    third = arctan2(qy, qx) / 3
    size = tl.sqrt(qx * qx + qy * qy)
    r = tl.where(size > TINY, tl.exp(tl.log(tl.maximum(size, TINY)) / 3), 0.0)
    x, y = r * tl.cos(third), r * tl.sin(third)
    v, w = multiply_numbers(px, py, x, -y)
    norm = tl.maximum(r * r, TINY)
    v, w = v / norm, w / norm
    root: tl.constexpr = 0.86602540378443864676
    dx, dy = root * (x - v), root * (y - w)
    first = arctan2(my + y + w, mx + x + v)
    second = arctan2(my - 0.5 * (y + w) + dx, mx - 0.5 * (x + v) - dy)
    third = arctan2(my - 0.5 * (y + w) - dx, mx - 0.5 * (x + v) + dy)
    return _sort_angles(first, second, third)


@triton.jit
def _sort_angles(a, b, c):
    """Sort angles, in descending order, after a turn of one of them that makes their sum zero."""
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
def _compute_discriminant(a, square):
    """Return the root of `prod |x_i - x_j|^2 / 108` of a normal matrix without a trace."""
    norm, _ = inner(a, a)
    re, im = trace(square)
    rest = add_scalar(square, -re / 3, -im / 3)
    re, im = inner(a, square)
    f = 1 / tl.maximum(norm, TINY)
    rest = add_scaled(rest, scale_complex(a, re * f, im * f), -1.0)
    left, _ = inner(rest, rest)
    return tl.sqrt(norm * left) / 6


@triton.jit
def _differentiate_logarithm(inputs, results, total, N: tl.constexpr, BLOCK: tl.constexpr):
    h = hermitian_part(mat.load(inputs[0], total, N, BLOCK))
    y = hermitian_part(mat.load(inputs[2], total, N, BLOCK))
    product = multiply(h, y)
    along = _multiply_even(h, y, product)
    along = add_scaled(along, multiply_i(add_scaled(product, adjoint(product), -1.0)), -0.5)
    by_u = multiply_i(multiply(mat.load(inputs[1], total, N, BLOCK), along))
    mat.store(results[0], by_u, total, BLOCK)


@triton.jit
def _multiply_even(h, y, product):
    """Multiply y_ij by x cot x, x = (t_i - t_j) / 2: see `even_part` in C."""
    along, _ = trace(product)
    square = multiply(h, h)
    norm, _ = trace(square)
    if len(h) == 8:
        norm = 0.5 * norm
        r = tl.sqrt(norm)
        even = inverse_sinc(r) * tl.cos(r)
        along = (1 - even) * along / (2 * tl.maximum(norm, TINY))
        out = add_scaled(scale_real(y, even), h, along)
    else:
        a, c, b = _compute_eigenvalues(h, square, norm)
        c1 = 0.5 * norm
        a0, a1, a2 = _compute_even_coefficients(a, b, c, c1)
        out = add_scaled(scale_real(y, a0), add_scaled(product, adjoint(product), 1.0), a1)
        out = add_scaled(out, multiply(product, h), a2)
        second, _ = trace_product(square, y)
        own = a0, a1, a2, c1, along, second
        d0, d1, d2 = _correct_diagonal(a, b, c, own)
        e0, e1, e2 = _correct_diagonal(b, c, a, own)
        f0, f1, f2 = _correct_diagonal(c, a, b, own)
        out = add_scaled(add_scaled(out, square, d2 + e2 + f2), h, d1 + e1 + f1)
        out = add_scalar(out, d0 + e0 + f0, tl.zeros_like(d0))
    return out


@triton.jit
def _compute_eigenvalues(a, square, norm):
    """Return the eigenvalues of a traceless Hermitian 3x3 matrix, in descending order."""
    q, _ = determinant(a, cofactors(a))
    third = arctan2(_compute_discriminant(a, square), 0.5 * q) / 3
    r = tl.sqrt(norm / 6)
    x, y = r * tl.cos(third), 1.73205080756887729353 * r * tl.sin(third)
    return 2 * x, y - x, -x - y


@triton.jit
def _compute_even_coefficients(a, b, c, c1):
    """Return the coefficients of y, `h y + y h` and `h y h`."""
    even_a, even_b = _x_cotangent(0.5 * (c - b)), _x_cotangent(0.5 * (a - c))
    ab = (even_a - even_b) / tl.maximum(a - b, TINY)
    near_a = a - c < c - b
    far, gap = tl.where(near_a, b, a), tl.where(near_a, c - b, c - a)
    slope = _x_cotangent_slope(tl.where(near_a, a, b), c, far)
    a2 = (slope - ab) * gap / tl.maximum(gap * gap, TINY)
    return even_a - ab * a + a2 * (a * b + c1), -(ab + a2 * c), a2


@triton.jit
def _x_cotangent(x):
    return inverse_sinc(x) * tl.cos(x)


@triton.jit
def _x_cotangent_slope(p, q, r):
    """Return the slope of x cot x between x = (r - q) / 2 and (r - p) / 2, by h, for p near q."""
    numerator = tl.sin(1.5 * r) - 1.5 * r / inverse_sinc(0.5 * (p - q))
    return 0.25 * numerator / tl.maximum(tl.sin(0.5 * (r - q)) * tl.sin(0.5 * (r - p)), TINY)


@triton.jit
def _correct_diagonal(t, p, q, own):
    """Return the missing diagonal part at eigenvalue t, a polynomial of h; p, q the others."""
    a0, a1, a2, c1, first, second = own
    slope = (t - p) * (t - q)
    size = tl.abs(t - p) + tl.abs(t - q) + tl.abs(p - q)
    apart = tl.abs(slope) > 1e-13 * size * size  # else it lacks nothing
    weight = (1 - (a0 + 2 * a1 * t + a2 * t * t)) * (second + t * first)
    weight = tl.where(apart, weight / tl.where(apart, slope * slope, 1.0), 0.0)
    return weight * (t * t - c1), weight * t, weight
