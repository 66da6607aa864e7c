"""Projection to U(N) and SU(N) on NVIDIA GPUs: Triton, one matrix per element of a block."""

import triton
import triton.language as tl
from torch import Tensor

from pipeline_kernels.su3 import matrices_cuda as mat
from pipeline_kernels.su3.matrices_cuda import (
    adjoint,
    arc,
    cofactors,
    determinant,
    either,
    inner,
    launch,
    multiple,
    plus,
    plus_scalar,
    scaled,
    times,
    times_i,
    trace,
    trace_times,
)

MAX_STEPS = tl.constexpr(24)
CONVERGED = tl.constexpr(1e-16)  # squared change of Newton's iteration


def polar(M: Tensor, special: bool) -> Tensor:
    """Implements `reference.polar`."""
    out = M.new_empty(M.shape)
    launch(_polar, [M, out], special)
    return out


def polar_gradient(M: Tensor, W: Tensor, G: Tensor, special: bool) -> Tensor:
    """Implements `reference.polar_gradient`."""
    out = M.new_empty(M.shape)
    launch(_polar_gradient, [M, W, G, out], special)
    return out


@triton.jit
def _polar(m, out, total, N: tl.constexpr, SPECIAL: tl.constexpr, BLOCK: tl.constexpr):
    x = _unitary_factor(mat.load(m, total, N, BLOCK))
    if SPECIAL:
        re, im = determinant(x, cofactors(x))
        angle = arc(im, re) / N
        x = scaled(x, tl.cos(angle), -tl.sin(angle))
    mat.store(out, x, total, BLOCK)


@triton.jit
def _unitary_factor(x):
    """Newton's iteration of projection.c."""
    if len(x) == 8:
        c = cofactors(x)
        re, im = determinant(x, c)
        size = tl.sqrt(re * re + im * im)
        x = plus(x, scaled(_conjugate(c), re / size, im / size), 1.0)
        norm, _ = inner(x, x)
        x = multiple(x, 1 / tl.sqrt(0.5 * norm))
    else:
        active = x[0] == x[0]
        step = 0
        while (step < MAX_STEPS) & (tl.max(active.to(tl.int32), 0) > 0):
            c = cofactors(x)
            re, im = determinant(x, c)
            inverse = 1 / (re * re + im * im)
            ratio, _ = inner(c, c)
            norm, _ = inner(x, x)
            scale = tl.sqrt(tl.sqrt(ratio * inverse / norm))
            f = 0.5 * inverse / scale
            following = plus(scaled(_conjugate(c), f * re, f * im), x, 0.5 * scale)
            difference = plus(following, x, -1.0)
            change, _ = inner(difference, difference)
            x = either(active, following, x)
            active = active & (change > CONVERGED)
            step += 1
    return x


@triton.jit
def _conjugate(a):
    out = ()
    for i in tl.static_range(len(a) // 2):
        out = out + (a[2 * i], -a[2 * i + 1])  # noqa: RUF005
    return out


@triton.jit
def _polar_gradient(
    m, w, g, out, total, N: tl.constexpr, SPECIAL: tl.constexpr, BLOCK: tl.constexpr
):
    u = mat.load(w, total, N, BLOCK)
    inverse = adjoint(u)
    p = times(inverse, mat.load(m, total, N, BLOCK))
    y = times(inverse, mat.load(g, total, N, BLOCK))
    y = plus(y, adjoint(y), -1.0)
    if SPECIAL:
        re, im = trace(p)
        size = tl.sqrt(re * re + im * im)
        p, u = scaled(p, re / size, -im / size), scaled(u, re / size, im / size)
        re, im = trace(y)
        y = plus_scalar(y, -re / N, -im / N)
    p = multiple(plus(p, adjoint(p), 1.0), 0.5)
    mat.store(out, times(u, _half_anticommutator(p, y)), total, BLOCK)


@triton.jit
def _half_anticommutator(p, y):
    """Solves `p x + x p = y`: see `projection_reference.half_anticommutator`."""
    zero = tl.zeros_like(p[0])
    c = cofactors(p)
    e1, _ = trace(p)
    _, t0 = trace(y)  # imaginary, as all traces with y
    _, t1 = trace_times(p, y)
    if len(p) == 8:
        e2, _ = determinant(p, c)
        f = 0.5 / (e1 * e2)
        x = plus(multiple(y, 1 / e1), times_i(p), f * (t1 - e1 * t0))
        x = plus_scalar(x, zero, f * ((e1 * e1 - e2) * t0 - e1 * t1))
    else:
        e2, _ = trace(c)
        e3, _ = determinant(p, c)
        square = times(p, p)
        _, t2 = trace_times(square, y)
        q = plus_scalar(multiple(p, -1.0), e1, zero)
        det = e1 * e2 - e3
        f = 0.5 / (det * e3)
        mixed = 2 * e1 * e3 - e1 * e1 * e2
        by_one = (e1 * e2 * e2 - e3 * (e1 * e1 + e2)) * t0 + mixed * t1 + det * t2
        by_p = mixed * t0 + (e1 * e1 * e1 - e3) * t1 - e1 * e1 * t2
        by_square = det * t0 - e1 * e1 * t1 + e1 * t2
        x = multiple(times(times(q, y), q), 1 / det)
        x = plus(x, times_i(p), f * by_p)
        x = plus(x, times_i(square), f * by_square)
        x = plus_scalar(x, zero, f * by_one)
    return x
