"""The residual step on NVIDIA GPUs: Triton. Psi is the polynomial of A that psi.c starts from."""

import triton
import triton.language as tl
from torch import Tensor

from pipeline_kernels.su3 import matrices_cuda as mat
from pipeline_kernels.su3.algebra_cuda import (
    compute_components,
    compute_left_product,
    count_rows,
    invert,
    make_element,
    make_tables,
    make_unit,
    multiply_maps,
    pull_left_product,
    spread,
    sum_products,
    transpose,
)
from pipeline_kernels.su3.exponential.cuda import (
    compute_invariants,
    exponentiate,
    pull_exponential,
)
from pipeline_kernels.su3.matrices_cuda import (
    add_scaled,
    adjoint,
    hermitian_part,
    inner,
    multiply,
    multiply_i,
    scale_real,
)

BLOCK = 16  # links of a program
PSI_TERMS = tl.constexpr(12)  # of each series, for eigenvalues of A up to 2
PICARD = tl.constexpr(4)
NEWTON = tl.constexpr(60)
TOLERANCE = tl.constexpr(1e-9)


def residual_step(
    U: Tensor, paths: Tensor, weights: Tensor, inverse: bool
) -> tuple[Tensor, Tensor]:
    """Implement `reference.residual_step`."""
    moved, log_det = U.new_empty(U.shape), weights.new_empty(U.shape[0])
    _launch(_move_links, [U, paths, weights], [moved, log_det], inverse)
    return moved, log_det


def residual_gradient(
    U: Tensor,
    paths: Tensor,
    weights: Tensor,
    moved: Tensor,
    by_moved: Tensor,
    by_log_det: Tensor,
    inverse: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Implement `reference.residual_gradient`."""
    results = tuple(x.new_empty(x.shape) for x in (U, paths, weights))
    inputs = [U, paths, weights, moved, by_moved, by_log_det]
    _launch(_differentiate_step, inputs, list(results), inverse)
    by_U, by_paths, by_weights = results
    return by_U, by_paths, by_weights


def _launch(
    kernel: triton.JITFunction, inputs: list[Tensor], results: list[Tensor], inverse: bool
) -> None:
    tables = make_tables(inputs[0].shape[1], inputs[0].device)
    mat.launch(kernel, inputs, results, tuple(tables), inputs[1].shape[1], inverse, block=BLOCK)


@triton.jit
def _move_links(
    inputs, results, total, N: tl.constexpr,
    tables, n_paths, INVERSE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    R: tl.constexpr = count_rows(N)
    u = mat.load(inputs[0], total, N, BLOCK)
    sigma = _sum_paths(inputs[1], inputs[2], total, n_paths, N, BLOCK)
    if INVERSE:
        image = _solve(u, sigma, tables, R)
        _, determinant = invert(_evaluate(image, sigma, tables, R)[5])
        log_det = -tl.log(determinant)
    else:
        point = _evaluate(u, sigma, tables, R)
        image = multiply(point[1], u)
        _, determinant = invert(point[5])
        log_det = tl.log(determinant)
    mat.store(results[0], image, total, BLOCK)
    mat.store(results[1], (log_det,), total, BLOCK)


@triton.jit
def _differentiate_step(
    inputs, results, total, N: tl.constexpr,
    tables, n_paths, INVERSE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    R: tl.constexpr = count_rows(N)
    u = mat.load(inputs[0], total, N, BLOCK)
    sigma = _sum_paths(inputs[1], inputs[2], total, n_paths, N, BLOCK)
    by = mat.load(inputs[4], total, N, BLOCK)
    by_log_det = mat.load_numbers(inputs[5], 1, total, BLOCK)[0]
    if INVERSE:
        source = mat.load(inputs[3], total, N, BLOCK)
        point = _evaluate(source, sigma, tables, R)
        slope, _ = invert(point[5])
        by_loop = _pull_log_determinant(point, slope, -by_log_det, tables)
        by_source = add_scaled(by, multiply(by_loop, sigma), 1.0)
        across = compute_components(multiply(by_source, adjoint(source)), tables[0], R)
        solved = make_element(tl.sum(slope * across[:, :, None], 1), tables[0], N, R)
        turn = point[1]
        by_u = multiply(multiply(multiply(turn, solved), adjoint(turn)), u)
        by_loop = add_scaled(by_loop, _pull_turn(point[0], source, by_u), -1.0)
        by_sigma = multiply(adjoint(by_loop), source)
    else:
        point = _evaluate(u, sigma, tables, R)
        slope, _ = invert(point[5])
        by_loop = _pull_log_determinant(point, slope, by_log_det, tables)
        by_loop = add_scaled(by_loop, _pull_turn(point[0], u, by), 1.0)
        by_u = add_scaled(multiply(adjoint(point[1]), by), multiply(by_loop, sigma), 1.0)
        by_sigma = multiply(adjoint(by_loop), u)
    mat.store(results[0], by_u, total, BLOCK)
    row = mat.find_rows(BLOCK)
    for k in range(n_paths):
        path, weight = _load_path(inputs[1], inputs[2], k, total, n_paths, N, BLOCK)
        by_weight, _ = inner(path, by_sigma)
        tl.store(results[2] + row * n_paths + k, by_weight, row < total)
        by_path = scale_real(by_sigma, weight)
        for i in tl.static_range(2 * N * N):
            place = (row * n_paths + k) * (2 * N * N) + i
            tl.store(results[1] + place, by_path[i], row < total)


@triton.jit
def _load_path(paths, weights, k, total, n_paths, N: tl.constexpr, BLOCK: tl.constexpr):
    """Load the path k of each link, and its weight."""
    row = tl.minimum(mat.find_rows(BLOCK), total - 1) * n_paths + k
    path = ()
    for i in tl.static_range(2 * N * N):
        path = path + (tl.load(paths + row * (2 * N * N) + i).to(tl.float64),)  # noqa: RUF005
    return path, tl.load(weights + row)


@triton.jit
def _sum_paths(paths, weights, total, n_paths, N: tl.constexpr, BLOCK: tl.constexpr):
    path, weight = _load_path(paths, weights, 0, total, n_paths, N, BLOCK)
    out = scale_real(path, weight)
    for k in range(1, n_paths):
        path, weight = _load_path(paths, weights, k, total, n_paths, N, BLOCK)
        out = add_scaled(out, path, weight)
    return out


@triton.jit
def _evaluate(u, sigma, tables, R: tl.constexpr):
    """Return of links h, exp(i h), A with its powers, M, 1 + Psi M, Psi, and its coefficients."""
    loop = multiply(u, adjoint(sigma))
    h = hermitian_part(loop)
    A = -2.0 * compute_left_product(multiply_i(h), tables[1], R)
    square = multiply_maps(A, A)
    cube = multiply_maps(A, square)
    odd, even = _sum_series(_list_invariants(h), 2), _sum_series(_list_invariants(h), 3)
    psi = make_unit(R)[None, :, :] - spread(odd[0]) * A + spread(even[0]) * square
    if len(u) == 18:
        psi += multiply_maps(cube, _compute_factor(A, square, cube, odd, even, R))
    M = compute_left_product(loop, tables[1], R)
    slope = make_unit(R)[None, :, :] + multiply_maps(psi, M)
    return h, exponentiate(h), (A, square, cube), M, psi, slope, odd, even


@triton.jit
def _list_invariants(h):
    return compute_invariants(h, multiply(h, h))


@triton.jit
def _compute_factor(A, square, cube, odd, even, R: tl.constexpr):
    """Return the coefficient of A^3 in Psi."""
    out = spread(even[1]) * A - spread(odd[2]) * square + spread(even[2]) * cube
    return out - spread(odd[1]) * make_unit(R)[None, :, :]


@triton.jit
def _pull_log_determinant(point, slope, factor, tables):
    """Return the derivative of `factor log det` by the loop, where slope is the inverse one."""
    _, _, _, M, psi, _, _, _ = point
    by_M = spread(factor) * transpose(multiply_maps(slope, psi))
    by_psi = spread(factor) * transpose(multiply_maps(M, slope))
    by_loop = pull_left_product(by_M, tables[1], len(point[0]))
    return add_scaled(by_loop, _pull_psi(point, by_psi, tables), 1.0)


@triton.jit
def _pull_psi(point, by, tables):
    """Return the derivative by the loop from that by Psi."""
    h, _, powers, _, _, _, odd, even = point
    A, square, cube = powers
    N: tl.constexpr = mat.count_colours(len(h))
    by_A, by_square = -spread(odd[0]) * by, spread(even[0]) * by
    by_odd, by_even = (-sum_products(by, A),), (sum_products(by, square),)
    if N == 3:
        factor = _compute_factor(A, square, cube, odd, even, by.shape[1])
        by_factor = -multiply_maps(cube, by)
        by_cube = multiply_maps(by, transpose(factor)) + spread(even[2]) * by_factor
        by_A += spread(even[1]) * by_factor + multiply_maps(by_cube, square)
        by_square -= spread(odd[2]) * by_factor + multiply_maps(A, by_cube)
        unit = make_unit(by.shape[1])[None, :, :]
        more = (-sum_products(by_factor, unit), -sum_products(by_factor, square))
        by_odd = by_odd + more
        more = (sum_products(by_factor, A), sum_products(by_factor, cube))
        by_even = by_even + more
    by_A -= multiply_maps(by_square, A) + multiply_maps(A, by_square)
    by_g = scale_real(pull_left_product(by_A, tables[1], len(h)), -2.0)
    by_c = _pull_series(_list_invariants(h), by_odd, by_even)
    by_h = scale_real(h, by_c[N - 2])
    if N == 3:
        by_h = add_scaled(by_h, multiply(h, h), by_c[0])
    return multiply_i(hermitian_part(add_scaled(by_g, multiply_i(by_h), 1.0)))


@triton.jit
def _pull_turn(h, u, by):
    """Return the derivative by the loop from that by exp(i h) U."""
    return pull_exponential(h, multiply(by, adjoint(u)))


@triton.jit
def _solve(moved, sigma, tables, R: tl.constexpr):
    """Return the links whose images are given; no numbers where the iteration does not end."""
    N: tl.constexpr = mat.count_colours(len(moved))
    u = moved
    for _step in range(PICARD):  # not `_`, which is another type below
        h = hermitian_part(multiply(u, adjoint(sigma)))
        u = multiply(exponentiate(scale_real(h, -1.0)), moved)
    is_open = tl.zeros_like(u[0]) + 1
    count = 0
    while (count < NEWTON) & (tl.max(is_open, 0) > 0):
        point = _evaluate(u, sigma, tables, R)
        slope, _ = invert(point[5])
        error = multiply(multiply(u, adjoint(moved)), point[1])
        error = compute_components(error, tables[0], R)
        step = tl.sum(slope * error[:, None, :], 2)
        back = hermitian_part(make_element(-step, tables[0], N, R))
        u = mat.select(is_open > 0, multiply(exponentiate(back), u), u)
        largest = tl.max(tl.abs(step), 1)
        is_open = tl.where(largest > TOLERANCE, is_open, 0.0)
        count += 1
    out = ()
    for i in tl.static_range(len(u)):
        out = out + (tl.where(is_open > 0, float("nan"), u[i]),)  # noqa: RUF005
    return out


@triton.jit
def _list_factors(c):
    """Return q of `y^n = q[0] + .. + q[n-1] y^(n-1)`, for y = A^2 and n the terms of each sum."""
    if len(c) == 1:
        return (-4 * c[0],)
    else:  # noqa: RET505 -- a branch of the compiler
        return 27 * c[0] * c[0] - 4 * c[1] * c[1] * c[1], -9 * c[1] * c[1], -6 * c[1]


@triton.jit
def _sum_series(c, FIRST: tl.constexpr):
    """Return the coefficients of the sum over k of `y^k / (2 k + FIRST)!`."""
    q = _list_factors(c)
    zero = tl.zeros_like(c[0])
    out = (zero,) * len(q)
    for step in tl.static_range(PSI_TERMS):
        out = _raise_degree(out, q, _invert_factorial(2 * (PSI_TERMS - 1 - step) + FIRST))
    return out


@triton.constexpr_function
def _invert_factorial(n):
    out = 1.0
    for k in range(2, n + 1):
        out /= k
    return out


@triton.jit
def _raise_degree(x, q, term):
    """Return `y x + term`."""
    top = x[len(x) - 1]
    out = (q[0] * top + term,)
    for m in tl.static_range(1, len(x)):
        out = out + (x[m - 1] + q[m] * top,)  # noqa: RUF005
    return out


@triton.jit
def _pull_series(c, by_odd, by_even):
    """Return the derivatives by the invariants from those by the coefficients of both sums."""
    if len(c) == 1:
        return (_differentiate_sums(c, (tl.zeros_like(c[0]) - 4,), by_odd, by_even),)
    else:  # noqa: RET505 -- a branch of the compiler
        zero = tl.zeros_like(c[0])
        first = (54 * c[0], zero, zero)
        second = (-12 * c[1] * c[1], -18 * c[1], zero - 6)
        return (
            _differentiate_sums(c, first, by_odd, by_even),
            _differentiate_sums(c, second, by_odd, by_even),
        )


@triton.jit
def _differentiate_sums(c, by_q, by_odd, by_even):
    """Return the change of both sums, times their derivatives, as q changes along by_q."""
    odd, even = _differentiate_series(c, by_q, 2), _differentiate_series(c, by_q, 3)
    out = tl.zeros_like(c[0])
    for m in tl.static_range(len(by_odd)):
        out += odd[m] * by_odd[m] + even[m] * by_even[m]
    return out


@triton.jit
def _differentiate_series(c, by_q, FIRST: tl.constexpr):
    q = _list_factors(c)
    zero = tl.zeros_like(c[0])
    value, change = (zero,) * len(q), (zero,) * len(q)
    for step in tl.static_range(PSI_TERMS):
        top = value[len(q) - 1]
        change = add_scaled(_raise_degree(change, q, 0.0), by_q, top)
        value = _raise_degree(value, q, _invert_factorial(2 * (PSI_TERMS - 1 - step) + FIRST))
    return change
