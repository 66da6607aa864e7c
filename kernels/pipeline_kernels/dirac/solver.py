"""Conjugate gradients on Mhat^dagger Mhat in one precision, for several right-hand sides at once.

In C the whole iteration is one call: spinors stay in the order of the lanes, and each field stops
where it has arrived. Elsewhere the same iteration is PyTorch.
"""

import ctypes
from dataclasses import dataclass

import torch
from torch import Tensor

from pipeline_kernels import native
from pipeline_kernels.dirac import cpu
from pipeline_kernels.dirac.operator import DiracOperator
from pipeline_kernels.threads import choose_threads


class Equation(ctypes.Structure):
    """What is solved: `Equation` in solver.c."""

    _fields_ = (
        ("kappa", ctypes.c_double),
        ("twist", ctypes.c_double),
        ("max_iterations", ctypes.c_int64),
    )


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
        """Of the field that took most, over all calls."""

    def iterate(self, residual: Tensor, goal: Tensor, max_iterations: int) -> Tensor:
        """Iterate from a residual until it is small.

        Args:
            residual: b - Mhat^dagger Mhat x, `(batch, n_rhs, V/2, S, N)`.
            goal: |r|^2 at which a field stops, `(batch, n_rhs)` float64.
            max_iterations: stop here at the latest.

        Returns:
            What is to be added to x, of the shape of the residual.
        """
        step, n = self.state.iterate(residual, goal, max_iterations)
        self.n_iterations += n
        return step


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
    """The iteration in C, with spinors in the order of the lanes."""

    def __init__(self, operator: DiracOperator, shape: torch.Size) -> None:
        links = operator.links
        self.operator, self.shape = operator, shape
        self.library = cpu.load_library(links.shape[-1], len(operator.extents), links.dtype)
        plan = cpu.make_plan(self.library, operator.extents, shape[0], shape[1])
        self.task, _, self.n_units, self.n_bytes = plan
        self.n_lanes = cpu.count_lanes(self.library)
        numbers = 2 * shape[-2] * shape[-1]
        packed = self.n_units, self.task.half, numbers, self.n_lanes
        self.direction = torch.zeros(packed, dtype=links.real.dtype)
        self.last = torch.zeros(self.n_units, self.n_lanes, dtype=torch.float64)

    def iterate(self, residual: Tensor, goal: Tensor, max_iterations: int) -> tuple[Tensor, int]:
        r, x = torch.empty_like(self.direction), torch.zeros_like(self.direction)
        self._call("pack_odd", native.make_plain(residual), r)
        counts = torch.zeros(self.n_units, dtype=torch.int64)
        equation = Equation(self.operator.kappa, self.operator.two_kappa_mu, max_iterations)
        native.call_routine(
            self.library,
            "iterate_normal",
            x,
            r,
            self.direction,
            self.operator.packed,
            self.last,
            self._spread_over_lanes(goal),
            counts,
            self.task,
            equation,
            n_threads=min(self.n_units, choose_threads(64 * residual.numel())),
            n_bytes=self.n_bytes,
        )
        step = torch.empty_like(residual, memory_format=torch.contiguous_format)
        self._call("unpack_odd", step, x)
        return step, int(counts.max())

    def _call(self, routine: str, *arrays: Tensor) -> None:
        n_threads = min(self.n_units, choose_threads(arrays[0].numel()))
        native.call_routine(self.library, routine, *arrays, self.task, n_threads=n_threads)

    def _spread_over_lanes(self, goal: Tensor) -> Tensor:
        """Return goals (batch, n_rhs) as (n_units, n_lanes); lanes without a field get infinity."""
        n_fields, n_parts = self.n_lanes // self.task.n_parts, self.task.n_parts
        several = self.shape[0] > 1
        rows = goal.mT if several else goal  # the last axis is that of the fields of a unit
        missing = -rows.shape[1] % n_fields
        padded = torch.nn.functional.pad(rows, (0, missing), value=float("inf"))
        units = padded.reshape(len(rows), -1, n_fields)
        units = units.transpose(0, 1).reshape(-1, n_fields) if several else units[0]
        return units.repeat_interleave(n_parts, dim=1).contiguous()


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
