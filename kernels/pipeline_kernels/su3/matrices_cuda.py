"""Small complex matrices in Triton: tuples of 2 N N blocks of numbers, row after row.

Each number is a block with one element per matrix, in double precision. Numbers of complex values
are pairs (real, imaginary).
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 128  # matrices of a program
TINY = tl.constexpr(1e-280)


def launch(kernel: triton.JITFunction, arrays: list[Tensor], *constants: object) -> None:
    """Runs a kernel over all matrices: its arguments are arrays, their number, N, constants, BLOCK.

    Args:
        kernel: the kernel.
        arrays: complex, `(n, N, N)`; results contiguous.
        constants: further arguments.
    """
    total, n_colours = arrays[0].shape[:2]
    if total == 0:
        return
    numbers = [torch.view_as_real(array.resolve_conj().contiguous()) for array in arrays]
    with torch.cuda.device_of(arrays[0]):
        kernel[(triton.cdiv(total, BLOCK),)](*numbers, total, n_colours, *constants, BLOCK)


@triton.constexpr_function
def colours(n_numbers):
    """Returns N of a matrix of 2 N N numbers."""
    return 2 if n_numbers == 8 else 3


@triton.jit
def own_rows(BLOCK: tl.constexpr):
    """Returns which matrices a program has."""
    return tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)


@triton.jit
def load(x, total, N: tl.constexpr, BLOCK: tl.constexpr):
    """Loads the matrices of a program, the last one again beyond the end."""
    row = tl.minimum(own_rows(BLOCK), total - 1) * (2 * N * N)
    out = ()
    for i in tl.static_range(2 * N * N):
        out = out + (tl.load(x + row + i).to(tl.float64),)  # noqa: RUF005
    return out


@triton.jit
def store(x, a, total, BLOCK: tl.constexpr):
    """Stores the matrices of a program."""
    row = own_rows(BLOCK)
    for i in tl.static_range(len(a)):
        tl.store(x + row * len(a) + i, a[i], row < total)


@triton.jit
def entry(a, i: tl.constexpr, j: tl.constexpr):
    """Returns a number of row i and column j."""
    N: tl.constexpr = colours(len(a))
    return a[2 * (N * i + j)], a[2 * (N * i + j) + 1]


@triton.jit
def times(a, b):
    """Returns the product of two matrices."""
    N: tl.constexpr = colours(len(a))
    out = ()
    for i in tl.static_range(N):
        for j in tl.static_range(N):
            re, im = multiplied(*entry(a, i, 0), *entry(b, 0, j))
            for k in tl.static_range(1, N):
                x, y = multiplied(*entry(a, i, k), *entry(b, k, j))
                re += x
                im += y
            out = out + (re, im)  # noqa: RUF005
    return out


@triton.jit
def multiplied(re, im, x, y):
    """Returns the product of two complex numbers."""
    return re * x - im * y, re * y + im * x


@triton.jit
def adjoint(a):
    """Returns the conjugate of the transpose."""
    N: tl.constexpr = colours(len(a))
    out = ()
    for i in tl.static_range(N):
        for j in tl.static_range(N):
            out = out + (a[2 * (N * j + i)], -a[2 * (N * j + i) + 1])  # noqa: RUF005
    return out


@triton.jit
def scaled(a, re, im):
    """Multiplies by a complex number."""
    out = ()
    for i in tl.static_range(len(a) // 2):
        x, y = multiplied(re, im, a[2 * i], a[2 * i + 1])
        out = out + (x, y)  # noqa: RUF005
    return out


@triton.jit
def multiple(a, factor):
    """Multiplies by a real number."""
    out = ()
    for i in tl.static_range(len(a)):
        out = out + (factor * a[i],)  # noqa: RUF005
    return out


@triton.jit
def times_i(a):
    """Multiplies by i."""
    out = ()
    for i in tl.static_range(len(a) // 2):
        out = out + (-a[2 * i + 1], a[2 * i])  # noqa: RUF005
    return out


@triton.jit
def plus(a, b, factor):
    """Returns `a + factor b`, for a real factor."""
    out = ()
    for i in tl.static_range(len(a)):
        out = out + (a[i] + factor * b[i],)  # noqa: RUF005
    return out


@triton.jit
def plus_scalar(a, re, im):
    """Adds a multiple of the unit matrix."""
    N: tl.constexpr = colours(len(a))
    out = ()
    for i in tl.static_range(N * N):
        if i % (N + 1) == 0:
            out = out + (a[2 * i] + re, a[2 * i + 1] + im)  # noqa: RUF005
        else:
            out = out + (a[2 * i], a[2 * i + 1])  # noqa: RUF005
    return out


@triton.jit
def either(mask, a, b):
    """Chooses, for each matrix, the one or the other."""
    out = ()
    for i in tl.static_range(len(a)):
        out = out + (tl.where(mask, a[i], b[i]),)  # noqa: RUF005
    return out


@triton.jit
def trace(a):
    """Returns the sum of the diagonal."""
    N: tl.constexpr = colours(len(a))
    re, im = a[0], a[1]
    for i in tl.static_range(1, N):
        re += a[2 * i * (N + 1)]
        im += a[2 * i * (N + 1) + 1]
    return re, im


@triton.jit
def trace_times(a, b):
    """Returns the trace of a product."""
    N: tl.constexpr = colours(len(a))
    re, im = tl.zeros_like(a[0]), tl.zeros_like(a[0])
    for i in tl.static_range(N):
        for j in tl.static_range(N):
            x, y = multiplied(*entry(a, i, j), *entry(b, j, i))
            re += x
            im += y
    return re, im


@triton.jit
def inner(a, b):
    """Returns `tr a^dagger b`."""
    re, im = tl.zeros_like(a[0]), tl.zeros_like(a[0])
    for i in tl.static_range(len(a) // 2):
        x, y = multiplied(a[2 * i], -a[2 * i + 1], b[2 * i], b[2 * i + 1])
        re += x
        im += y
    return re, im


@triton.jit
def cofactors(a):
    """Returns the determinant times the transpose of the inverse."""
    N: tl.constexpr = colours(len(a))
    out = ()
    for i in tl.static_range(N):
        for j in tl.static_range(N):
            if N == 2:
                x, y = entry(a, 1 - i, 1 - j)
                sign = 1 - 2 * ((i + j) % 2)
                out = out + (sign * x, sign * y)  # noqa: RUF005
            else:
                x, y = _pair(a, (i + 1) % 3, (j + 1) % 3, (i + 2) % 3, (j + 2) % 3)
                v, w = _pair(a, (i + 1) % 3, (j + 2) % 3, (i + 2) % 3, (j + 1) % 3)
                out = out + (x - v, y - w)  # noqa: RUF005
    return out


@triton.jit
def _pair(a, i: tl.constexpr, j: tl.constexpr, k: tl.constexpr, m: tl.constexpr):
    return multiplied(*entry(a, i, j), *entry(a, k, m))


@triton.jit
def determinant(a, its_cofactors):
    """Returns the sum of a row, each number times its cofactor."""
    N: tl.constexpr = colours(len(a))
    re, im = multiplied(a[0], a[1], its_cofactors[0], its_cofactors[1])
    for j in tl.static_range(1, N):
        x, y = multiplied(*entry(a, 0, j), *entry(its_cofactors, 0, j))
        re += x
        im += y
    return re, im


@triton.jit
def hermitian_part(a):
    """Returns `-i (a - a^dagger) / 2` without its trace."""
    N: tl.constexpr = colours(len(a))
    h = times_i(multiple(plus(a, adjoint(a), -1.0), -0.5))
    re, im = trace(h)
    return plus_scalar(h, -re / N, -im / N)


@triton.jit
def arc(y, x):
    """Returns the angle of x + i y in [-pi, pi], as C does (vectors.c); zero at the origin."""
    a, b = tl.abs(x), tl.abs(y)
    low, high = tl.minimum(a, b), tl.maximum(a, b)
    far = low > 0.41421356237309503 * high
    t = tl.where(far, low - high, low) / tl.maximum(tl.where(far, low + high, high), TINY)
    u = t * t
    p = u * -0.019175404711104935 + 0.03923044778479309
    p = p * u - 0.050854078345894844
    p = p * u + 0.05858140904866328
    p = p * u - 0.06664510525508936
    p = p * u + 0.07692183125376892
    p = p * u - 0.0909090457530649
    p = p * u + 0.11111111015187018
    p = p * u - 0.14285714284665682
    p = p * u + 0.19999999999995516
    p = p * u - 0.3333333333333333
    p = p * u * t + t
    p = tl.where(far, p + 0.78539816339744830962, p)
    p = tl.where(b > a, 1.57079632679489661923 - p, p)
    p = tl.where(x < 0, 3.14159265358979323846 - p, p)
    return tl.where(y < 0, -p, p)


@triton.jit
def over_sine(x):
    """Returns x / sin x."""
    safe = tl.maximum(tl.abs(x), TINY)
    return safe / tl.sin(safe)
