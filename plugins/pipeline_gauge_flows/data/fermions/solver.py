"""Solutions of Wilson's Dirac equation by conjugate gradients on the normal equation.

| symbol                        | here                                                          |
|-------------------------------|---------------------------------------------------------------|
| Mhat^dagger Mhat x = b        | `DiracSolver.solve_normal`, spinors on odd sites              |
| Mhat x = b, Mhat^dagger x = b | `DiracSolver.solve_even_odd`                                  |
| M psi = eta                   | `DiracSolver.solve`, spinors on all sites                     |

Iterations are in single precision. When the residual has fallen by `_REDUCTION`, it is replaced
by the true residual in double precision, and the search keeps its direction: Sleijpen and van der
Vorst, Computing 56, 141 (1996); Clark et al., Comput. Phys. Commun. 181, 1517 (2010), section 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from pipeline_kernels.dirac import DiracOperator, NormalSolver, compute_residual, join, split

_REDUCTION: Final = {torch.complex64: 1e-3, torch.complex128: 1e-9}
"""Reduction of the residual in the iterations' precision, before the true one replaces it."""
_MARGIN: Final = 0.5
"""Margin of the tolerance: the true residual is a little larger than the iterations'."""


@dataclass(frozen=True)
class Solution:
    """Solution with residual and iteration counts.

    Attributes:
        spinors: Solutions, of the shape of the right-hand sides.
        residual: |r| / |b| of the normal equation in the precision of the operator, (batch, n_rhs)
            float64.
        n_iterations: Most conjugate-gradient iterations of a right-hand side.
        n_replacements: Number of replacements of the residual.
    """

    spinors: Tensor
    residual: Tensor
    n_iterations: int
    n_replacements: int


class DiracSolver:
    """Solver of equations of one operator for many right-hand sides at once.

    Solutions are not differentiable.

    Args:
        operator: M, with links in double precision if the tolerance is below 1e-6.
        tolerance: Largest |r| / |b| of the normal equation.
        mixed: Iterate in single precision, with residuals in the precision of the operator.
        max_iterations: Most iterations, beyond which an error is raised.
    """

    def __init__(
        self,
        operator: DiracOperator,
        tolerance: float = 1e-10,
        *,
        mixed: bool = True,
        max_iterations: int = 10_000,
    ) -> None:
        self.operator, self.tolerance, self.max_iterations = operator, tolerance, max_iterations
        dtype = torch.complex64 if mixed else operator.links.dtype
        self.inner = operator if dtype == operator.links.dtype else operator.convert(dtype)

    @torch.no_grad()
    def solve_normal(self, b: Tensor) -> Solution:
        """Solve Mhat^dagger Mhat x = b.

        Args:
            b: (batch, n_rhs, V / 2, S, N), on odd sites.

        Raises:
            ValueError: The tolerance is not reached.
        """
        dtype = self.inner.links.dtype
        search, n_replacements = NormalSolver(self.inner, b.shape), 0
        # Unit length: squares of small residuals do not underflow in single precision.
        size = _square(b).sqrt()
        b = b * _spread(torch.where(size > 0, 1 / size, 1.0), b)
        x, residual, norm = torch.zeros_like(b), b, _square(b)
        goal, best = self.tolerance**2, torch.full_like(norm, torch.inf)
        while bool((pending := ~(norm <= goal)).any()):
            stuck = (pending & ~(norm <= 0.5 * best)).any()  # or not a number
            if stuck or search.n_iterations >= self.max_iterations:
                self._refuse(norm, search.n_iterations)
            aim = (_REDUCTION[dtype] ** 2 * norm).clamp_min(_MARGIN**2 * goal)
            aim = torch.where(pending, aim, torch.inf)  # converged solutions stay unchanged
            left = self.max_iterations - search.n_iterations
            x = x + search.iterate(residual.to(dtype), aim, left).to(x.dtype)
            best = torch.minimum(best, norm)
            residual, norm = compute_residual(self.operator, x, b)
            n_replacements += 1
        return Solution(x * _spread(size, x), norm.sqrt(), search.n_iterations, n_replacements)

    @torch.no_grad()
    def solve_even_odd(self, b: Tensor, *, adjoint: bool = False) -> Solution:
        """Solve Mhat x = b, or Mhat^dagger x = b, on odd sites."""
        if adjoint:
            normal = self.solve_normal(b)
            spinors = self.operator.apply_even_odd(normal.spinors)
        else:
            normal = self.solve_normal(self.operator.apply_even_odd(b, adjoint=True))
            spinors = normal.spinors
        return Solution(spinors, normal.residual, normal.n_iterations, normal.n_replacements)

    @torch.no_grad()
    def solve(self, eta: Tensor) -> Solution:
        """Solve M psi = eta.

        Args:
            eta: (batch, n_rhs, V, S, N), on all sites.
        """
        operator, kappa = self.operator, self.operator.kappa
        even, odd = split(eta, operator.extents)
        start = operator.invert_diagonal(even)
        odd_solution = self.solve_even_odd(odd + kappa * operator.hop(start, parity=1))
        x = odd_solution.spinors
        even = operator.invert_diagonal(even + kappa * operator.hop(x, parity=0))
        return Solution(
            join(even, x, operator.extents),
            odd_solution.residual,
            odd_solution.n_iterations,
            odd_solution.n_replacements,
        )

    def _refuse(self, norm: Tensor, n_iterations: int) -> None:
        reached = float(norm.max().sqrt())
        raise ValueError(
            f"conjugate gradients: |r| / |b| is {reached:.1e} after {n_iterations} iterations, not "
            f"{self.tolerance:.1e}; raise the tolerance or max_iterations, give links in double "
            "precision, or a smaller kappa"
        )


def _square(psi: Tensor) -> Tensor:
    """Return |psi|^2 of each field, (batch, n_rhs) float64."""
    return torch.view_as_real(psi.resolve_conj()).double().square().flatten(2).sum(-1)


def _spread(numbers: Tensor, like: Tensor) -> Tensor:
    """Return one number per field, (batch, n_rhs), as a factor of spinors."""
    return numbers[:, :, None, None, None].to(like.real.dtype)
