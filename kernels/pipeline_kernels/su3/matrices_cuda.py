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


def launch(
    kernel: triton.JITFunction,
    inputs: list[Tensor],
    results: list[Tensor],
    *constants: object,
    block: int = BLOCK,
) -> None:
    """Run a kernel for all matrices: inputs, results, their number, N, constants, BLOCK.

    Args:
        kernel: the kernel.
        inputs: `(n, ...)`, the first complex and `(n, N, N)`.
        results: `(n, ...)`, contiguous; the kernel fills them.
        constants: further arguments.
        block: matrices of a program.
    """
    total, n_colours = inputs[0].shape[:2]
    if total == 0:
        return
    inputs = [x.resolve_conj().resolve_neg().contiguous() for x in inputs]
    given, made = (
        tuple(torch.view_as_real(x) if x.is_complex() else x for x in arrays)
        for arrays in (inputs, results)
    )
    with torch.cuda.device_of(inputs[0]):
        kernel[(triton.cdiv(total, block),)](given, made, total, n_colours, *constants, block)


@triton.constexpr_function
def count_colours(n_numbers):
    """Return N of a matrix of 2 N N numbers."""
    return 2 if n_numbers == 8 else 3


@triton.jit
def find_rows(BLOCK: tl.constexpr):
    """Return the matrices of a program."""
    return tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)


@triton.jit
def load(x, total, N: tl.constexpr, BLOCK: tl.constexpr):
    """Load the matrices of a program, the last one again beyond the end."""
    return load_numbers(x, 2 * N * N, total, BLOCK)


@triton.jit
def load_numbers(x, COUNT: tl.constexpr, total, BLOCK: tl.constexpr):
    """Load `COUNT` real numbers for each matrix."""
    row = tl.minimum(find_rows(BLOCK), total - 1) * COUNT
    out = ()
    for i in tl.static_range(COUNT):
        out = out + (tl.load(x + row + i).to(tl.float64),)  # noqa: RUF005
    return out


@triton.jit
def store(x, a, total, BLOCK: tl.constexpr):
    """Store the matrices of a program, or other numbers of each."""
    row = find_rows(BLOCK)
    for i in tl.static_range(len(a)):
        tl.store(x + row * len(a) + i, a[i], row < total)


@triton.jit
def get_entry(a, i: tl.constexpr, j: tl.constexpr):
    """Return a number of row i and column j."""
    N: tl.constexpr = count_colours(len(a))
    return a[2 * (N * i + j)], a[2 * (N * i + j) + 1]


@triton.jit
def multiply(a, b):
    """Return the product of two matrices."""
    N: tl.constexpr = count_colours(len(a))
    out = ()
    for i in tl.static_range(N):
        for j in tl.static_range(N):
            re, im = multiply_numbers(*get_entry(a, i, 0), *get_entry(b, 0, j))
            for k in tl.static_range(1, N):
                x, y = multiply_numbers(*get_entry(a, i, k), *get_entry(b, k, j))
                re += x
                im += y
            out = out + (re, im)  # noqa: RUF005
    return out


@triton.jit
def multiply_numbers(re, im, x, y):
    """Return the product of two complex numbers."""
    return re * x - im * y, re * y + im * x


@triton.jit
def adjoint(a):
    """Return the conjugate of the transpose."""
    N: tl.constexpr = count_colours(len(a))
    out = ()
    for i in tl.static_range(N):
        for j in tl.static_range(N):
            out = out + (a[2 * (N * j + i)], -a[2 * (N * j + i) + 1])  # noqa: RUF005
    return out


@triton.jit
def scale_complex(a, re, im):
    """Multiply by a complex number."""
    out = ()
    for i in tl.static_range(len(a) // 2):
        x, y = multiply_numbers(re, im, a[2 * i], a[2 * i + 1])
        out = out + (x, y)  # noqa: RUF005
    return out


@triton.jit
def scale_real(a, factor):
    """Multiply by a real number."""
    out = ()
    for i in tl.static_range(len(a)):
        out = out + (factor * a[i],)  # noqa: RUF005
    return out


@triton.jit
def multiply_i(a):
    """Multiply by i."""
    out = ()
    for i in tl.static_range(len(a) // 2):
        out = out + (-a[2 * i + 1], a[2 * i])  # noqa: RUF005
    return out


@triton.jit
def add_scaled(a, b, factor):
    """Return `a + factor b`, for a real factor."""
    out = ()
    for i in tl.static_range(len(a)):
        out = out + (a[i] + factor * b[i],)  # noqa: RUF005
    return out


@triton.jit
def add_scalar(a, re, im):
    """Add a multiple of the unit matrix."""
    N: tl.constexpr = count_colours(len(a))
    out = ()
    for i in tl.static_range(N * N):
        if i % (N + 1) == 0:
            out = out + (a[2 * i] + re, a[2 * i + 1] + im)  # noqa: RUF005
        else:
            out = out + (a[2 * i], a[2 * i + 1])  # noqa: RUF005
    return out


@triton.jit
def select(mask, a, b):
    """Choose, for each matrix, the one or the other."""
    out = ()
    for i in tl.static_range(len(a)):
        out = out + (tl.where(mask, a[i], b[i]),)  # noqa: RUF005
    return out


@triton.jit
def trace(a):
    """Return the sum of the diagonal."""
    N: tl.constexpr = count_colours(len(a))
    re, im = a[0], a[1]
    for i in tl.static_range(1, N):
        re += a[2 * i * (N + 1)]
        im += a[2 * i * (N + 1) + 1]
    return re, im


@triton.jit
def trace_product(a, b):
    """Return the trace of a product."""
    N: tl.constexpr = count_colours(len(a))
    re, im = tl.zeros_like(a[0]), tl.zeros_like(a[0])
    for i in tl.static_range(N):
        for j in tl.static_range(N):
            x, y = multiply_numbers(*get_entry(a, i, j), *get_entry(b, j, i))
            re += x
            im += y
    return re, im


@triton.jit
def inner(a, b):
    """Return `tr a^dagger b`."""
    re, im = tl.zeros_like(a[0]), tl.zeros_like(a[0])
    for i in tl.static_range(len(a) // 2):
        x, y = multiply_numbers(a[2 * i], -a[2 * i + 1], b[2 * i], b[2 * i + 1])
        re += x
        im += y
    return re, im


@triton.jit
def cofactors(a):
    """Return the determinant times the transpose of the inverse."""
    N: tl.constexpr = count_colours(len(a))
    out = ()
    for i in tl.static_range(N):
        for j in tl.static_range(N):
            if N == 2:
                x, y = get_entry(a, 1 - i, 1 - j)
                sign = 1 - 2 * ((i + j) % 2)
                out = out + (sign * x, sign * y)  # noqa: RUF005
            else:
                x, y = _multiply_entries(a, (i + 1) % 3, (j + 1) % 3, (i + 2) % 3, (j + 2) % 3)
                v, w = _multiply_entries(a, (i + 1) % 3, (j + 2) % 3, (i + 2) % 3, (j + 1) % 3)
                out = out + (x - v, y - w)  # noqa: RUF005
    return out


@triton.jit
def _multiply_entries(a, i: tl.constexpr, j: tl.constexpr, k: tl.constexpr, m: tl.constexpr):
    return multiply_numbers(*get_entry(a, i, j), *get_entry(a, k, m))


@triton.jit
def determinant(a, its_cofactors):
    """Return the sum of a row, each number times its cofactor."""
    N: tl.constexpr = count_colours(len(a))
    re, im = multiply_numbers(a[0], a[1], its_cofactors[0], its_cofactors[1])
    for j in tl.static_range(1, N):
        x, y = multiply_numbers(*get_entry(a, 0, j), *get_entry(its_cofactors, 0, j))
        re += x
        im += y
    return re, im


@triton.jit
def hermitian_part(a):
    """Return `-i (a - a^dagger) / 2` without its trace."""
    N: tl.constexpr = count_colours(len(a))
    h = multiply_i(scale_real(add_scaled(a, adjoint(a), -1.0), -0.5))
    re, im = trace(h)
    return add_scalar(h, -re / N, -im / N)


@triton.jit
def arctan2(y, x):
    """Return the angle of x + i y in [-pi, pi], as C does (vectors.c); zero at the origin."""
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
def sin_cos(x):
    """Return sine and cosine of small numbers as C does (vectors.c): far less code than tl.sin."""
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
