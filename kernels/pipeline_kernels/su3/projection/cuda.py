"""Projection to SU(N) on NVIDIA GPUs: Triton, one matrix per element of a block."""

import triton
import triton.language as tl
from torch import Tensor

from pipeline_kernels.su3 import matrices_cuda as mat
from pipeline_kernels.su3.matrices_cuda import (
    add_scalar,
    add_scaled,
    adjoint,
    arctan2,
    cofactors,
    determinant,
    inner,
    launch,
    multiply,
    multiply_i,
    scale_complex,
    scale_real,
    select,
    trace,
    trace_product,
)

MAX_STEPS = tl.constexpr(24)
CONVERGED = tl.constexpr(1e-16)  # squared change of Newton's iteration


def project(M: Tensor) -> Tensor:
    """Implement `reference.project`."""
    out = M.new_empty(M.shape)
    launch(_project, [M], [out])
    return out


def project_gradient(M: Tensor, W: Tensor, G: Tensor) -> Tensor:
    """Implement `reference.project_gradient`."""
    out = M.new_empty(M.shape)
    launch(_differentiate_projection, [M, W, G], [out])
    return out


@triton.jit
def _project(inputs, results, total, N: tl.constexpr, BLOCK: tl.constexpr):
    x = _find_unitary_factor(mat.load(inputs[0], total, N, BLOCK))
    re, im = determinant(x, cofactors(x))
    angle = arctan2(im, re) / N
    x = scale_complex(x, tl.cos(angle), -tl.sin(angle))
    mat.store(results[0], x, total, BLOCK)


@triton.jit
def _find_unitary_factor(x):
    """Apply Newton's iteration of native.c."""
    if len(x) == 8:
        c = cofactors(x)
        re, im = determinant(x, c)
        size = tl.sqrt(re * re + im * im)
        x = add_scaled(x, scale_complex(_conjugate(c), re / size, im / size), 1.0)
        norm, _ = inner(x, x)
        x = scale_real(x, 1 / tl.sqrt(0.5 * norm))
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
            following = add_scaled(scale_complex(_conjugate(c), f * re, f * im), x, 0.5 * scale)
            difference = add_scaled(following, x, -1.0)
            change, _ = inner(difference, difference)
            x = select(active, following, x)
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
def _differentiate_projection(inputs, results, total, N: tl.constexpr, BLOCK: tl.constexpr):
    u = mat.load(inputs[1], total, N, BLOCK)
    inverse = adjoint(u)
    p = multiply(inverse, mat.load(inputs[0], total, N, BLOCK))
    y = multiply(inverse, mat.load(inputs[2], total, N, BLOCK))
    y = add_scaled(y, adjoint(y), -1.0)
    re, im = trace(p)
    size = tl.sqrt(re * re + im * im)
    p, u = scale_complex(p, re / size, -im / size), scale_complex(u, re / size, im / size)
    re, im = trace(y)
    y = add_scalar(y, -re / N, -im / N)
    p = scale_real(add_scaled(p, adjoint(p), 1.0), 0.5)
    mat.store(results[0], multiply(u, _solve_anticommutator(p, y)), total, BLOCK)


@triton.jit
def _solve_anticommutator(p, y):
    """Solve `p x + x p = y`: see `reference.solve_anticommutator`."""
    zero = tl.zeros_like(p[0])
    c = cofactors(p)
    e1, _ = trace(p)
    _, t0 = trace(y)  # imaginary, as all traces with y
    _, t1 = trace_product(p, y)
    if len(p) == 8:
        e2, _ = determinant(p, c)
        f = 0.5 / (e1 * e2)
        x = add_scaled(scale_real(y, 1 / e1), multiply_i(p), f * (t1 - e1 * t0))
        x = add_scalar(x, zero, f * ((e1 * e1 - e2) * t0 - e1 * t1))
    else:
        e2, _ = trace(c)
        e3, _ = determinant(p, c)
        square = multiply(p, p)
        _, t2 = trace_product(square, y)
        q = add_scalar(scale_real(p, -1.0), e1, zero)
        det = e1 * e2 - e3
        f = 0.5 / (det * e3)
        mixed = 2 * e1 * e3 - e1 * e1 * e2
        by_one = (e1 * e2 * e2 - e3 * (e1 * e1 + e2)) * t0 + mixed * t1 + det * t2
        by_p = mixed * t0 + (e1 * e1 * e1 - e3) * t1 - e1 * e1 * t2
        by_square = det * t0 - e1 * e1 * t1 + e1 * t2
        x = scale_real(multiply(multiply(q, y), q), 1 / det)
        x = add_scaled(x, multiply_i(p), f * by_p)
        x = add_scaled(x, multiply_i(square), f * by_square)
        x = add_scalar(x, zero, f * by_one)
    return x
