"""Cases of `su3_kernels.py`: what is called, on what, with the bytes and operations it needs."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pipeline_kernels.su3 import (
    draw_haar,
    exponential,
    path_products,
    project,
    residual_step,
    spectral_map,
    staple_layer,
)
from pipeline_kernels.su3.exponential import reference as exponential_reference
from pipeline_kernels.su3.paths import reference as paths_reference
from pipeline_kernels.su3.residual import reference as residual_reference
from pipeline_kernels.su3.staples import reference as staples_reference
from subjects.su3 import operations
from subjects.su3.plain import BINS, apply_eig_map, project_by_svd

STAPLES, WIDTH, DIMENSION, EXTENT = 6, 8, 4, 4  # of the lattice: six staples of each link
SITES = EXTENT**DIMENSION


class Case(NamedTuple):
    """What is measured.

    Attributes:
        name: Of the case.
        ours: The call.
        peer: The same by plain PyTorch.
        matrices: How many the call treats.
        bytes: Each input read once, each output written once, by each kernel.
        operations: Additions and multiplications.
        dtype: In which type they are calculated.
        at: Special unitary matrices by which the first gradient is taken, if it is.
    """

    name: str
    ours: Callable[[], Any]
    peer: Callable[[], Any]
    matrices: int
    bytes: int
    operations: float
    dtype: torch.dtype = torch.float64
    at: Tensor | None = None


class Inputs:
    """Random matrices, parameters and derivatives by results.

    Args:
        n: Number of matrices, at least 1024.
        dtype: Of the matrices.
        device: Where they are.
    """

    def __init__(self, n: int, dtype: torch.dtype, device: str) -> None:
        self.n, self.dtype, self.device = n, dtype, device
        self.generator = torch.Generator(device).manual_seed(0)
        self.U = draw_haar(n, 3, self.generator, dtype)
        self.by = self.draw(n, 3, 3)
        self.by_number = self.draw(n, dtype=torch.float64)

    def draw(self, *sizes: int, dtype: torch.dtype | None = None) -> Tensor:
        """Return normal numbers."""
        kind = {"dtype": dtype or self.dtype, "device": self.device, "generator": self.generator}
        return torch.randn(sizes, **kind)


def differentiate(
    function: Callable, inputs: list[Tensor], by: list[Tensor]
) -> Callable[[], list[Tensor]]:
    """Return a call of a function and of its derivative."""
    leaves = [x.clone().requires_grad_() for x in inputs]

    def gradient() -> list[Tensor]:
        results = function(*leaves)
        results = results if isinstance(results, tuple) else (results,)
        return [*torch.autograd.grad(results, leaves, by)]

    return gradient


def count_bytes(*tensors: Tensor) -> int:
    return sum(x.nbytes for x in tensors)


def make_gradient_case(
    name: str,
    functions: tuple[Callable, Callable],
    inputs: list[Tensor],
    by: list[Tensor],
    flop: float,
    **kind: Any,
) -> Case:
    """Return the case of a function and its derivative, whose kernels read the inputs twice."""
    ours, peer = (differentiate(f, inputs, by) for f in functions)
    size = 3 * count_bytes(*inputs) + 2 * count_bytes(*by)
    n = kind.pop("matrices", len(inputs[0]))
    return Case(name, ours, peer, n, size, n * flop, **kind)


def iterate_cases(n: int, dtype: torch.dtype, device: str) -> Iterator[Case]:
    """Yield all cases."""
    inputs = Inputs(n, dtype, device)
    yield from iterate_spectral(inputs)
    yield from iterate_steps(inputs)
    yield from iterate_lattice(inputs)


def iterate_spectral(x: Inputs) -> Iterator[Case]:
    """Yield what spectral flows call for each link."""
    parameters = x.draw(x.n, 2, 25, dtype=torch.float64)
    M = x.draw(x.n, 3, 3)
    flop = x.n * operations.count_polar(count_newton_steps(M))
    yield Case(
        "projection",
        lambda: [project(M)],
        lambda: [project_by_svd(M)],
        x.n,
        2 * M.nbytes,
        flop,
    )
    flop = operations.count_spectral(BINS)
    yield Case(
        "spectral map",
        lambda: spectral_map(x.U, parameters),
        lambda: apply_eig_map(x.U, parameters),
        x.n,
        count_bytes(x.U, x.U, parameters, x.by_number),
        x.n * flop,
    )
    yield make_gradient_case(
        "spectral map with gradient",
        (spectral_map, apply_eig_map),
        [x.U, parameters],
        [x.by, x.by_number],
        flop + operations.count_spectral_gradient(BINS),
        at=x.U,
    )


def iterate_steps(x: Inputs) -> Iterator[Case]:
    """Yield what residual flows call for each link."""
    A = 0.25 * exponential_reference.project_to_algebra(x.by)
    doublings = count_doublings(A)
    yield make_gradient_case(
        "exponential with gradient",
        (exponential, exponential_reference.exponential),
        [A],
        [x.by],
        operations.count_exponential(doublings) + operations.count_exponential_gradient(doublings),
    )
    paths = draw_haar(x.n * STAPLES, 3, x.generator, x.dtype).view(x.n, STAPLES, 3, 3)
    weights = x.draw(x.n, STAPLES, dtype=torch.float64)
    weights = 0.5 * weights / weights.abs().sum(1, keepdim=True)
    plain = residual_reference.residual_step
    yield make_gradient_case(
        "residual step with gradient",
        (residual_step, lambda *leaves: plain(*leaves, inverse=False)),
        [x.U, paths, weights],
        [x.by, x.by_number],
        operations.count_residual(STAPLES) + operations.count_residual_gradient(STAPLES),
        at=x.U,
    )


def iterate_lattice(x: Inputs) -> Iterator[Case]:
    """Yield what flows call for each configuration, calculated in the type of the links."""
    batch = x.n // (DIMENSION * SITES)
    forward, backward = find_neighbours(x.device)
    links = x.U.view(batch, DIMENSION * SITES, 3, 3)
    table, adjoint = list_staples(forward, backward)
    kind = {"dtype": x.U.real.dtype}
    yield make_gradient_case(
        "products along paths with gradient",
        (
            lambda links: path_products(links, table, adjoint),
            lambda links: paths_reference.path_products(links, table, adjoint),
        ),
        [links],
        [x.draw(batch, *table.shape[1:], 3, 3)],
        operations.count_paths(3) + operations.count_paths_gradient(3),
        matrices=batch * table[0].numel(),
        **kind,
    )
    S = x.draw(batch, WIDTH, DIMENSION, SITES, 3, 3)
    coefficients = x.draw(WIDTH, WIDTH * (2 * DIMENSION - 1), dtype=x.U.real.dtype)
    mask = torch.ones_like(forward, dtype=torch.bool)
    sizes = WIDTH, WIDTH, DIMENSION
    yield make_gradient_case(
        "layer of staples with gradient",
        (
            lambda S, c: staple_layer(S, c, forward, backward),
            lambda S, c: staples_reference.staple_layer(S, c, forward, backward, mask),
        ),
        [S, coefficients],
        [torch.randn_like(S)],
        operations.count_staples(*sizes) + operations.count_staples_gradient(*sizes),
        matrices=batch * DIMENSION * SITES,
        **kind,
    )


def find_neighbours(device: str) -> tuple[Tensor, Tensor]:
    """Return the sites before and behind each of a periodic lattice, `(directions, sites)`."""
    sites = torch.arange(SITES, device=device).view((EXTENT,) * DIMENSION)
    ahead, behind = (
        torch.stack([sites.roll(step, mu).flatten() for mu in range(DIMENSION)]) for step in (-1, 1)
    )
    return ahead, behind


def list_staples(forward: Tensor, backward: Tensor) -> tuple[Tensor, Tensor]:
    """Return the links of all staples of direction 0 at every second site, and which are passed
    backwards, as `path_products` takes them.
    """
    x = torch.arange(0, SITES, 2, device=forward.device)
    ways, adjoint = [], []
    for nu in range(1, DIMENSION):
        below = backward[nu, x]
        ways.append([nu * SITES + x, forward[nu, x], nu * SITES + forward[0, x]])
        ways.append([nu * SITES + below, below, nu * SITES + forward[0, below]])
        adjoint += [[False, False, True], [True, False, False]]
    table = torch.stack([torch.stack(way) for way in ways], -1)
    return table, torch.tensor(adjoint, device=forward.device).T.contiguous()


def count_newton_steps(M: Tensor) -> float:
    """Mean number of Newton's steps to the unitary factors of matrices, scaled as in the kernel."""
    x, total = M.to(torch.complex128), 0
    limit = 1e-10 if M.dtype == torch.complex64 else 1e-16
    active = torch.ones(len(M), dtype=torch.bool, device=M.device)
    while active.any():
        inverse = torch.linalg.inv(x).mH
        ratio = (inverse.abs().square().sum((1, 2)) / x.abs().square().sum((1, 2)))[:, None, None]
        scale = torch.where((ratio - 1).abs() > 0.1, ratio**0.25, 1.0)
        next_x = (scale * x + inverse / scale) / 2
        total += int(active.sum())
        change = (next_x - x).abs().square().sum((1, 2))
        x = torch.where(active[:, None, None], next_x, x)
        active = active & (change > limit)
    return total / len(M)


def count_doublings(A: Tensor) -> float:
    """Mean number of squarings after which the series of the exponential is enough."""
    bound = (2 / 3) * A.abs().double().square().sum((1, 2))  # 4/3 of tr h^2 / 2
    return float((bound.log2() / 2).clamp(min=0).ceil().mean())
