"""The residual step in plain PyTorch, by the formulas of `op.residual_step`."""

from functools import lru_cache
from typing import Final

import torch
from torch import Tensor

from pipeline_kernels.su3.matrices import conjugate_transpose

TERMS: Final = 26  # of the series of Psi, enough for 1e-16 where no eigenvalue of A exceeds 2
PICARD: Final = 4  # fixed-point iterations before Newton's
NEWTON: Final = 60
TOLERANCE: Final = 1e-9  # of the last step of Newton's iteration, whose error is its square


def residual_step(
    U: Tensor, paths: Tensor, weights: Tensor, inverse: bool
) -> tuple[Tensor, Tensor]:
    """Return links `(n, N, N)` and log-determinants `(n,)`."""
    sigma = _sum_paths(paths, weights)
    u = U.to(torch.complex128)
    if inverse:
        source = _solve(u, sigma)
        return source.to(U.dtype), -_map_forward(source, sigma)[1]
    moved, log_det = _map_forward(u, sigma)
    return moved.to(U.dtype), log_det


def residual_gradient(
    U: Tensor,
    paths: Tensor,
    weights: Tensor,
    moved: Tensor,
    by_moved: Tensor,
    by_log_det: Tensor,
    inverse: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the derivatives by U, paths and weights of `Re <by_moved, moved> + <by_.., log det>`.

    Differentiable by all arguments, any number of times. Derivatives of the inverse follow from the
    implicit function theorem: `moved` is then mapped to U.
    """
    source = moved if inverse else U

    # Unlike torch.autograd.grad it also works inside an operator, below automatic differentiation.
    def step(u: Tensor, paths: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        return residual_step(u, paths, weights, inverse=False)

    pull = torch.func.vjp(step, source, paths, weights)[1]
    if not inverse:
        by_U, by_paths, by_weights = pull((by_moved, by_log_det))
        return by_U, by_paths, by_weights
    by_source, *of_log_det = pull((torch.zeros_like(by_moved), -by_log_det))
    by_U = _pull_implicit(U, source, _sum_paths(paths, weights), by_moved + by_source)
    _, *of_image = pull((-by_U, torch.zeros_like(by_log_det)))
    by_paths, by_weights = (x + y for x, y in zip(of_log_det, of_image, strict=True))
    return by_U, by_paths, by_weights


def _pull_implicit(U: Tensor, source: Tensor, sigma: Tensor, by_source: Tensor) -> Tensor:
    """Return the derivative by the image U, along the group, from that by its source."""
    u, by = source.to(torch.complex128), by_source.to(torch.complex128)
    g, slope = compute_slope(u @ conjugate_transpose(sigma))
    turn = _exponentiate(g, U.shape[-1])
    across = compute_components(by @ conjugate_transpose(u))
    solved = torch.linalg.solve(slope.mT, across)
    generator = turn @ make_element(solved, U.shape[-1]) @ conjugate_transpose(turn)
    return (generator @ U.to(torch.complex128)).to(U.dtype)


def _sum_paths(paths: Tensor, weights: Tensor) -> Tensor:
    return (weights[..., None, None] * paths.to(torch.complex128)).sum(1)


def _map_forward(u: Tensor, sigma: Tensor) -> tuple[Tensor, Tensor]:
    """Return exp(g) U and the log-determinant of the map."""
    g, slope = compute_slope(u @ conjugate_transpose(sigma))
    return _exponentiate(g, u.shape[-1]) @ u, torch.linalg.slogdet(slope).logabsdet


def compute_slope(loop: Tensor) -> tuple[Tensor, Tensor]:
    """Return the components of g, `(n, r)`, r = N^2 - 1, and 1 + Psi M, `(n, r, r)`."""
    g, M = compute_components(loop), compute_left_product(loop)
    # [g, T] = -(T g - its adjoint): twice the part of -T g in the algebra.
    A = -2 * compute_left_product(make_element(g, loop.shape[-1]))
    product = M
    for order in range(TERMS, 1, -1):
        product = M - A @ product / order
    return g, product + torch.eye(M.shape[-1], dtype=M.dtype, device=M.device)


def _exponentiate(g: Tensor, n_colours: int) -> Tensor:
    return torch.matrix_exp(make_element(g, n_colours))


def _solve(moved: Tensor, sigma: Tensor) -> Tensor:
    """Return the links whose images are given; no numbers where the iteration does not end."""
    n_colours, adjoint = moved.shape[-1], conjugate_transpose(sigma)
    u = moved
    for _ in range(PICARD):
        u = _exponentiate(-compute_components(u @ adjoint), n_colours) @ moved
    largest = torch.zeros(len(moved), dtype=torch.float64, device=moved.device)
    for _ in range(NEWTON):
        g, slope = compute_slope(u @ adjoint)
        # 1 at the solution; turned from the left to the right of the step, as the slope is.
        error = u @ conjugate_transpose(moved) @ _exponentiate(g, n_colours)
        step = torch.linalg.solve(slope, compute_components(error))
        u = _exponentiate(-step, n_colours) @ u
        largest = step.abs().amax(-1)
        if not bool((largest > TOLERANCE).any()):
            break
    return torch.where((largest > TOLERANCE)[:, None, None], torch.nan, u)


@lru_cache(maxsize=8)
@torch.inference_mode(False)
def make_basis(n_colours: int, device: torch.device) -> Tensor:
    """Return antihermitian traceless T_a with tr T_a^dagger T_b = delta_ab, `(N^2 - 1, N, N)`."""
    generators = []
    for i in range(n_colours):
        for j in range(i):
            unit = torch.zeros(n_colours, n_colours, dtype=torch.complex128)
            unit[i, j] = 1
            generators += [unit - unit.mT, 1j * (unit + unit.mT)]
    for k in range(1, n_colours):
        entries = torch.tensor([1.0] * k + [-float(k)] + [0.0] * (n_colours - k - 1))
        generators.append(1j * torch.diag(entries).to(torch.complex128))
    return torch.stack([one / one.abs().square().sum().sqrt() for one in generators]).to(device)


@lru_cache(maxsize=8)
@torch.inference_mode(False)
def make_product_table(n_colours: int, device: torch.device) -> Tensor:
    """Return T_a T_b as `(N^2, (N^2 - 1)^2)`: the last axis is (a, b), the first that of L^T."""
    generators = make_basis(n_colours, device)
    products = torch.einsum("aij,bjk->ikab", generators, generators)
    return products.reshape(n_colours**2, -1)


for _n_colours in (2, 3):  # Made while torch.func transforms, they would be kept as its tensors.
    make_product_table(_n_colours, torch.device("cpu"))


def compute_components(matrices: Tensor) -> Tensor:
    """Return the components in the algebra of `(n, N, N)`, `(n, N^2 - 1)` float64."""
    generators = make_basis(matrices.shape[-1], matrices.device)
    # Re tr T_a^dagger m = Re sum conj(T_a) m
    return (matrices.flatten(-2) @ generators.flatten(1).conj_physical().mT).real


def make_element(vector: Tensor, n_colours: int) -> Tensor:
    """Return the matrices `(n, N, N)` with components `(n, N^2 - 1)`."""
    generators = make_basis(n_colours, vector.device)
    flat = vector.to(generators.dtype) @ generators.flatten(1)
    return flat.reshape(*vector.shape[:-1], n_colours, n_colours)


def compute_left_product(loops: Tensor) -> Tensor:
    """Return the maps X -> part of X L in the algebra, `(n, r, r)`, of L `(n, N, N)`."""
    n_colours = loops.shape[-1]
    rows = n_colours**2 - 1
    # Re tr T_a^dagger T_b L = - Re sum_ij (T_a T_b)_ij L_ji
    table = make_product_table(n_colours, loops.device)
    return -(loops.mT.flatten(-2) @ table).real.reshape(*loops.shape[:-2], rows, rows)
