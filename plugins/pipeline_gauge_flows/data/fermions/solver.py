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

from typing import Final

import torch
from torch import Tensor

from pipeline_kernels.dirac import DiracOperator, NormalSolver, compute_residual, join, split

_REDUCTION: Final = 1e-3
"""Reduction of the residual in the iterations, before the true one replaces it."""
_MARGIN: Final = 0.5
"""Margin of the tolerance: the true residual is a little larger than the iterations'."""
_MOST_ITERATIONS: Final = 10_000


class DiracSolver:
    """Solver of equations of one operator for many right-hand sides at once.

    Solutions are not differentiable, and have the shape of the right-hand sides.

    Args:
        operator: M, with links in double precision if the tolerance is below 1e-6.
        tolerance: Largest |r| / |b| of the normal equation, with r in the precision of the
            operator.
    """

    def __init__(self, operator: DiracOperator, tolerance: float = 1e-10) -> None:
        self.operator, self.tolerance = operator, tolerance
        is_single = operator.links.dtype == torch.complex64
        self.inner = operator if is_single else operator.convert(torch.complex64)

    @torch.no_grad()
    def solve_normal(self, b: Tensor) -> Tensor:
        """Solve Mhat^dagger Mhat x = b.

        Args:
            b: (batch, n_rhs, V / 2, S, N), on odd sites.

        Raises:
            ValueError: The tolerance is not reached.
        """
        search = NormalSolver(self.inner, b.shape)
        # Unit length: squares of small residuals do not underflow in single precision.
        size = _square(b).sqrt()
        b = b * _spread(torch.where(size > 0, 1 / size, 1.0), b)
        x, residual, norm = torch.zeros_like(b), b, _square(b)
        goal, best = self.tolerance**2, torch.full_like(norm, torch.inf)
        while bool((pending := ~(norm <= goal)).any()):
            stuck = (pending & ~(norm <= 0.5 * best)).any()  # or not a number
            if stuck or search.n_iterations >= _MOST_ITERATIONS:
                raise ValueError(
                    f"conjugate gradients: |r| / |b| is {float(norm.max().sqrt()):.1e} after "
                    f"{search.n_iterations} iterations, not {self.tolerance:.1e}; raise the "
                    "tolerance, give links in double precision, or a smaller kappa"
                )
            aim = (_REDUCTION**2 * norm).clamp_min(_MARGIN**2 * goal)
            aim = torch.where(pending, aim, torch.inf)  # converged solutions stay unchanged
            left = _MOST_ITERATIONS - search.n_iterations
            x = x + search.iterate(residual.to(torch.complex64), aim, left).to(x.dtype)
            best = torch.minimum(best, norm)
            residual, norm = compute_residual(self.operator, x, b)
        return x * _spread(size, x)

    @torch.no_grad()
    def solve_even_odd(self, b: Tensor, *, adjoint: bool = False) -> Tensor:
        """Solve Mhat x = b, or Mhat^dagger x = b, on odd sites."""
        if adjoint:
            return self.operator.apply_even_odd(self.solve_normal(b))
        return self.solve_normal(self.operator.apply_even_odd(b, adjoint=True))

    @torch.no_grad()
    def solve(self, eta: Tensor) -> Tensor:
        """Solve M psi = eta.

        Args:
            eta: (batch, n_rhs, V, S, N), on all sites.
        """
        operator, kappa = self.operator, self.operator.kappa
        even, odd = split(eta, operator.extents)
        start = operator.invert_diagonal(even)
        x = self.solve_even_odd(odd + kappa * operator.hop(start, parity=1))
        even = operator.invert_diagonal(even + kappa * operator.hop(x, parity=0))
        return join(even, x, operator.extents)


def _square(psi: Tensor) -> Tensor:
    """Return |psi|^2 of each field, (batch, n_rhs) float64."""
    return torch.view_as_real(psi.resolve_conj()).double().square().flatten(2).sum(-1)


def _spread(numbers: Tensor, like: Tensor) -> Tensor:
    """Return one number per field, (batch, n_rhs), as a factor of spinors."""
    return numbers[:, :, None, None, None].to(like.real.dtype)
