"""Conjugate gradients on Mhat^dagger Mhat in one precision, for several right-hand sides at once.

In C the whole iteration is one call: spinors stay in the order of the lanes, and each field stops
where it has arrived. Elsewhere the same iteration is PyTorch.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from pipeline_kernels import native
from pipeline_kernels.checks import check_tensor
from pipeline_kernels.dirac import cpu
from pipeline_kernels.dirac.geometry import ODD
from pipeline_kernels.dirac.operator import DiracOperator
from pipeline_kernels.threads import choose_threads


class NormalSolver:
    """Iterates Mhat^dagger Mhat x = b by conjugate gradients, in the precision of the operator.

    It keeps the direction of the search between calls, so that an outer loop may replace the
    residual by a more accurate one and go on.

    Args:
        operator: Mhat.
        shape: of the right-hand sides, `(batch, n_rhs, V/2, S, N)`.
    """

    def __init__(self, operator: DiracOperator, shape: torch.Size) -> None:
        self.operator, self.shape = operator, shape
        on_cpu = operator.packed is not None
        self.state: _PackedState | _PlainState = (
            _PackedState(operator, shape) if on_cpu else _PlainState(operator, shape)
        )
        self.n_iterations = 0
        """Iterations of the slowest field, summed over all calls."""

    def iterate(self, residual: Tensor, goal: Tensor, max_iterations: int) -> Tensor:
        """Iterate from a residual until it is small.

        Args:
            residual: b - Mhat^dagger Mhat x, `(batch, n_rhs, V/2, S, N)`.
            goal: |r|^2 at which a field stops, `(batch, n_rhs)` float64.
            max_iterations: stop here at the latest.

        Returns:
            What is to be added to x, of the shape of the residual.

        Raises:
            ValueError: if an argument is of another shape or type.
        """
        self.operator.check("residual", residual, ODD)
        check_tensor("residual", residual, self.shape, (residual.dtype,))
        check_tensor("goal", goal, self.shape[:2], (torch.float64,))
        step, n = self.state.iterate(residual, goal, max_iterations)
        self.n_iterations += n
        return step


def compute_residual(operator: DiracOperator, x: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return b - Mhat^dagger Mhat x and its square, not differentiable.

    Args:
        operator: Mhat.
        x: `(batch, n_rhs, V/2, S, N)`, on odd sites.
        b: of the same shape.

    Returns:
        The residual, of the same shape, and |r|^2 of each field, `(batch, n_rhs)` float64.

    Raises:
        ValueError: if x or b are none of the operator's spinors, or differ in shape.
    """
    operator.check("x", x, ODD)
    operator.check("b", b, ODD)
    if x.shape != b.shape:
        raise ValueError(f"x: expected {tuple(b.shape)} as b, got {tuple(x.shape)}")
    if operator.packed is None:
        residual = b - operator.apply_even_odd(operator.apply_even_odd(x), adjoint=True)
        return residual, _multiply(residual, residual)
    x, b = native.make_plain(x), native.make_plain(b)
    residual, norm = torch.empty_like(b), torch.empty(b.shape[:2], dtype=torch.float64)
    _Call(operator, b.shape).run("compute_residual", x, b, residual, norm, operator.packed)
    return residual, norm


@dataclass
class _PlainState:
    """The iteration in PyTorch."""

    operator: DiracOperator
    shape: torch.Size

    def __post_init__(self) -> None:
        self.direction = torch.zeros(
            self.shape, dtype=self.operator.links.dtype, device=self.operator.links.device
        )
        self.last = torch.zeros(self.shape[:2], dtype=torch.float64, device=self.direction.device)

    def iterate(self, residual: Tensor, goal: Tensor, max_iterations: int) -> tuple[Tensor, int]:
        solution, n = torch.zeros_like(residual), 0
        norm = _multiply(residual, residual)
        while n < max_iterations and bool((going := norm > goal).any()):
            beta = _divide(norm, self.last)
            moved = residual + _spread(beta, residual) * self.direction
            self.direction = torch.where(_spread(going, residual), moved, self.direction)
            image = self.operator.apply_even_odd(self.direction)
            image = self.operator.apply_even_odd(image, adjoint=True)
            alpha = _divide(norm, _multiply(self.direction, image)) * going
            solution = solution + _spread(alpha, residual) * self.direction
            residual = residual - _spread(alpha, residual) * image
            self.last = torch.where(going, norm, self.last)
            norm, n = _multiply(residual, residual), n + 1
        return solution, n


class _PackedState:
    """The iteration in C; the direction of the search is in the order of the lanes."""

    def __init__(self, operator: DiracOperator, shape: torch.Size) -> None:
        self.operator = operator
        self.call = _Call(operator, shape)
        n_lanes, numbers = cpu.count_lanes(self.call.library), 2 * shape[-2] * shape[-1]
        packed = self.call.n_units, self.call.lanes.half, numbers, n_lanes
        self.direction = torch.zeros(packed, dtype=operator.links.real.dtype)
        self.last = torch.zeros(self.call.n_units, n_lanes, dtype=torch.float64)

    def iterate(self, residual: Tensor, goal: Tensor, max_iterations: int) -> tuple[Tensor, int]:
        residual = native.make_plain(residual)
        step, counts = torch.empty_like(residual), torch.zeros(self.call.n_units, dtype=torch.int64)
        fields = residual, step, self.direction, self.operator.packed
        numbers = self.last, goal.contiguous(), counts
        self.call.run("iterate_normal", *fields, *numbers, max_iterations=max_iterations)
        return step, int(counts.max())


class _Call:
    """Calls routines for fields of one shape."""

    def __init__(self, operator: DiracOperator, shape: torch.Size) -> None:
        links = operator.links
        self.factors = float(operator.kappa), float(operator.two_kappa_mu)
        self.library = cpu.load_library(links.shape[-1], len(operator.extents), links.dtype)
        plan = cpu.make_plan(self.library, operator.extents, shape[0], shape[1])
        self.task, self.lanes, _, self.n_units, self.n_bytes = plan
        self.n_threads = min(self.n_units, choose_threads(64 * shape.numel()))

    def run(self, routine: str, *arrays: Tensor | None, max_iterations: int = 0) -> None:
        """Call a routine."""
        equation = native.pack(*self.factors, max_iterations)  # `Equation` in solver.c
        sizes = {"n_threads": self.n_threads, "n_bytes": self.n_bytes}
        native.call_routine(self.library, routine, *arrays, self.task, equation, **sizes)


def _multiply(a: Tensor, b: Tensor) -> Tensor:
    """Return Re a^dagger b of each field, (batch, n_rhs) float64."""
    product = torch.view_as_real(a) * torch.view_as_real(b)
    return product.flatten(2).sum(-1, dtype=torch.float64)


def _divide(a: Tensor, b: Tensor) -> Tensor:
    return torch.where(b == 0, 0.0, a / torch.where(b == 0, 1.0, b))


def _spread(numbers: Tensor, like: Tensor) -> Tensor:
    return numbers[:, :, None, None, None].to(
        numbers.dtype if numbers.dtype == torch.bool else like.real.dtype
    )
