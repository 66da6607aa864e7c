"""Exponential on NVIDIA GPUs: Triton, by the formulas of native.c."""

import triton
import triton.language as tl
from torch import Tensor

from pipeline_kernels.su3 import matrices_cuda as mat
from pipeline_kernels.su3.matrices_cuda import (
    add_scalar,
    add_scaled,
    adjoint,
    cofactors,
    determinant,
    hermitian_part,
    launch,
    multiply,
    multiply_i,
    multiply_numbers,
    scale_complex,
    scale_real,
    trace,
    trace_product,
)

TERMS = tl.constexpr(20)  # of a Taylor series, for eigenvalues up to 1
MAX_HALVINGS = tl.constexpr(60)


def exponential(A: Tensor) -> Tensor:
    """Implement `reference.exponential`."""
    out = A.new_empty(A.shape)
    launch(_exponentiate, [A], [out])
    return out


def exponential_gradient(A: Tensor, G: Tensor) -> Tensor:
    """Implement `reference.exponential_gradient`."""
    out = A.new_empty(A.shape)
    launch(_differentiate_exponential, [A, G], [out])
    return out


@triton.jit
def _exponentiate(inputs, results, total, N: tl.constexpr, BLOCK: tl.constexpr):
    h = hermitian_part(mat.load(inputs[0], total, N, BLOCK))
    mat.store(results[0], exponentiate(h), total, BLOCK)


@triton.jit
def _differentiate_exponential(inputs, results, total, N: tl.constexpr, BLOCK: tl.constexpr):
    h = hermitian_part(mat.load(inputs[0], total, N, BLOCK))
    g = mat.load(inputs[1], total, N, BLOCK)
    mat.store(results[0], pull_exponential(h, g), total, BLOCK)


@triton.jit
def exponentiate(h):
    """Return exp(i h) for h Hermitian and traceless."""
    square = multiply(h, h)
    f = _compute_coefficients(compute_invariants(h, square), False)[0]
    return _evaluate_polynomial(f, h, square)


@triton.jit
def pull_exponential(h, g):
    """Return the derivative by `i h`, in the algebra, from that by exp(i h), g."""
    N: tl.constexpr = mat.count_colours(len(h))
    square = multiply(h, h)
    by = _compute_coefficients(compute_invariants(h, square), True)
    f = by[0]
    g = adjoint(g)
    by_h = _symmetrize(scale_complex(g, f[2], f[3]))
    if N == 3:
        part = multiply(h, _symmetrize(scale_complex(g, f[4], f[5])))
        by_h = add_scaled(by_h, add_scaled(part, adjoint(part), 1.0), 1.0)
        by_h = add_scaled(by_h, square, _trace_polynomial(g, by[1], h, square))
        by_h = add_scaled(by_h, h, _trace_polynomial(g, by[2], h, square))
    else:
        by_h = add_scaled(by_h, h, _trace_polynomial(g, by[1], h, square))
    mean, _ = trace(by_h)
    return multiply_i(add_scalar(by_h, -mean / N, tl.zeros_like(mean)))


@triton.jit
def _symmetrize(a):
    return scale_real(add_scaled(a, adjoint(a), 1.0), 0.5)


@triton.jit
def _trace_polynomial(g, f, h, square):
    """Return the real part of `tr g (f0 + f1 h + f2 h^2)`."""
    re, im = trace(g)
    x, y = trace_product(g, h)
    total = f[0] * re - f[1] * im + f[2] * x - f[3] * y
    if len(f) == 6:
        x, y = trace_product(g, square)
        total += f[4] * x - f[5] * y
    return total


@triton.jit
def _evaluate_polynomial(f, h, square):
    """Return `f0 + f1 h + f2 h^2`, where f are pairs of numbers."""
    out = add_scalar(scale_complex(h, f[2], f[3]), f[0], f[1])
    if len(f) == 6:
        out = add_scaled(out, scale_complex(square, f[4], f[5]), 1.0)
    return out


@triton.jit
def compute_invariants(h, square):
    """Return c of `h^N = c[0] + .. + c[N-2] h^(N-2)`."""
    norm, _ = trace(square)
    if len(h) == 8:
        return (0.5 * norm,)
    else:  # noqa: RET505 -- a branch of the compiler
        det, _ = determinant(h, cofactors(h))
        return det, 0.5 * norm


@triton.jit
def _compute_coefficients(c, DERIVATIVES: tl.constexpr):
    """Return coefficients of exp(i h) in powers of h, and derivatives by each invariant."""
    N: tl.constexpr = len(c) + 1
    bound = c[N - 2] * (4.0 / 3 if N == 3 else 1.0)
    halvings = tl.zeros_like(bound)
    most = 0
    while (most < MAX_HALVINGS) & (tl.max(bound, 0) > 1):
        large = bound > 1
        bound = tl.where(large, 0.25 * bound, bound)
        halvings += tl.where(large, 1.0, 0.0)
        c = _scale_invariants(c, tl.where(large, 0.5, 1.0))
        most += 1
    zero = tl.zeros_like(bound)
    f = (zero + 1, zero) + (zero,) * (2 * N - 2)
    by_first = (zero,) * (2 * N)
    by_second = (zero,) * (2 * N)
    for step in range(TERMS):
        factor = 1.0 / (zero + (TERMS - step))  # f = 1 + i h f / k
        if DERIVATIVES:
            by_first = _raise_degree(by_first, c, f, 0, factor)
            if N == 3:
                by_second = _raise_degree(by_second, c, f, 1, factor)
        f = _raise_degree(f, c, f, N, factor)
        f = (f[0] + 1,) + f[1:]  # noqa: RUF005
    while most > 0:
        large = halvings >= most
        full = _double_product(f, f)
        if DERIVATIVES:
            twice = _double_product(f, by_first)
            by_first = mat.select(large, _reduce_degree(twice, c, full, 0), by_first)
            if N == 3:
                twice = _double_product(f, by_second)
                by_second = mat.select(large, _reduce_degree(twice, c, full, 1), by_second)
        f = mat.select(large, _reduce_degree(scale_real(full, 0.5), c, full, N), f)
        scale = tl.where(large, 0.5, 1.0)
        f = _scale_coefficients(f, scale, 0)
        by_first = _scale_coefficients(by_first, scale, N)
        by_second = _scale_coefficients(by_second, scale, N - 1)
        c = _scale_invariants(c, 1 / scale)
        most -= 1
    return f, by_first, by_second


@triton.jit
def _scale_invariants(c, factor):
    """Return the invariants of `factor h`."""
    if len(c) == 1:
        return (c[0] * factor * factor,)
    else:  # noqa: RET505 -- a branch of the compiler
        return c[0] * factor * factor * factor, c[1] * factor * factor


@triton.jit
def _scale_coefficients(f, factor, DEGREE: tl.constexpr):
    """Rescale to powers of `h / factor`; a derivative by an invariant has its degree."""
    scale = tl.zeros_like(factor) + 1
    for _ in tl.static_range(DEGREE):
        scale *= factor
    out = ()
    for i in tl.static_range(len(f) // 2):
        out = out + (f[2 * i] * scale, f[2 * i + 1] * scale)  # noqa: RUF005
        scale *= factor
    return out


@triton.jit
def _raise_degree(f, c, own, j: tl.constexpr, factor):
    """Return `factor i (h f + own[N-1] h^j)`; no second term for j = N."""
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
def _double_product(f, g):
    """Return twice the product of two polynomials, of degree 2 N - 2."""
    N: tl.constexpr = len(f) // 2
    out = ()
    for k in tl.static_range(2 * N - 1):
        re, im = tl.zeros_like(f[0]), tl.zeros_like(f[0])
        for a in tl.static_range(N):
            if a <= k and k - a < N:
                x, y = multiply_numbers(f[2 * a], f[2 * a + 1], g[2 * (k - a)], g[2 * (k - a) + 1])
                re += 2 * x
                im += 2 * y
        out = out + (re, im)  # noqa: RUF005
    return out


@triton.jit
def _reduce_degree(p, c, twice, j: tl.constexpr):
    """Lower the degree of p to N - 1, by `h^N = c[0] + ..`.

    For j < N, p is the derivative by c[j] of half the polynomial `twice`, whose own reduction
    depends on c[j] too.
    """
    N: tl.constexpr = len(c) + 1
    own = scale_real(twice, 0.5)
    for step in tl.static_range(N - 1):
        p = _lower_degree(p, c, own, 2 * N - 2 - step, j)
        own = _lower_degree(own, c, own, 2 * N - 2 - step, N)
    return p[: 2 * N]


@triton.jit
def _lower_degree(p, c, own, top: tl.constexpr, j: tl.constexpr):
    """Replace the highest power, `top`."""
    N: tl.constexpr = len(c) + 1
    for i in tl.static_range(N - 1):
        re, im = c[i] * p[2 * top], c[i] * p[2 * top + 1]
        if i == j:
            re += own[2 * top]
            im += own[2 * top + 1]
        p = _add_to(p, top - N + i, re, im)
    return p


@triton.jit
def _add_to(p, at: tl.constexpr, re, im):
    """Return p with a coefficient changed."""
    out = ()
    for k in tl.static_range(len(p) // 2):
        if k == at:
            out = out + (p[2 * k] + re, p[2 * k + 1] + im)  # noqa: RUF005
        else:
            out = out + (p[2 * k], p[2 * k + 1])  # noqa: RUF005
    return out
