"""Pseudofermions: determinants of Wilson's operator, and ratios of two, as actions of the links.

On odd sites only, with M_1, M_2 short for Mhat with the masses mu_1 < mu_2,

| weight                    | S                              | phi for given links        |
|---------------------------|--------------------------------|----------------------------|
| |det M_1|^2               | |M_1^-dagger phi|^2            | M_1^dagger chi             |
| |det M_1|^2 / |det M_2|^2 | |M_1^-dagger M_2^dagger phi|^2 | M_2^-dagger M_1^dagger chi |

where chi has the density exp(-|chi|^2). Their product is the determinant of light quarks by
way of heavier ones, and the force of a ratio is small: Hasenbusch, Phys. Lett. B 519, 177 (2001);
with twisted masses Urbach et al., Comput. Phys. Commun. 174, 87 (2006).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import torch
from torch import Tensor

from pipeline_gauge_flows.data.actions import GaugeAction
from pipeline_gauge_flows.data.datasets import ActionOptions
from pipeline_gauge_flows.data.fermions.solver import DiracSolver
from pipeline_gauge_flows.data.lattice import Lattice
from pipeline_gauge_flows.data.loops import project_to_algebra
from pipeline_kernels.dirac import DiracOperator

_TOLERANCE: Final = 1e-11
"""|r| / |b| of the solutions for S and phi."""
_FORCE_TOLERANCE: Final = 1e-9
"""|r| / |b| of the solutions for forces; the acceptance test corrects for it."""


def split_action(
    options: ActionOptions, lattice: Lattice, masses: Sequence[float] = ()
) -> list[GaugeAction | Pseudofermions]:
    """Return an action as terms: of the gauge field, and pseudofermions if there are quarks.

    Args:
        options: The action.
        lattice: The lattice.
        masses: Twisted masses 2 kappa mu of heavier doublets, the heaviest first, above the mass of
            the quarks: their determinant is the heaviest's times the ratios of neighbours.
    """
    terms: list[GaugeAction | Pseudofermions] = [GaugeAction(options, lattice)]
    if options.fermions is not None:
        kappa, falling = options.fermions.kappa, [*masses, options.fermions.two_kappa_mu]
        terms.append(Pseudofermions(lattice, kappa, falling[0]))
        terms += [
            Pseudofermions(lattice, kappa, light, heavy) for heavy, light in pairwise(falling)
        ]
    return terms


class Pseudofermions:
    """Action of one pseudofermion per configuration.

    Args:
        lattice: The lattice, with even extents and two or four dimensions.
        kappa: Hopping parameter.
        two_kappa_mu: mu_1 as 2 kappa mu_1.
        heavier: mu_2 as 2 kappa mu_2; None for a determinant in place of a ratio.
    """

    def __init__(
        self, lattice: Lattice, kappa: float, two_kappa_mu: float, heavier: float | None = None
    ) -> None:
        self.lattice, self.kappa = lattice, kappa
        self.two_kappa_mu, self.heavier = two_kappa_mu, heavier
        self.phi: Tensor | None = None
        """(batch, 1, V / 2, S, N), after `refresh`."""

    def refresh(self, links: Tensor, generator: torch.Generator) -> None:
        """Draw phi from its distribution at the links."""
        operator, d, n = self._build_operator(links), self.lattice.dimension, links.shape[-1]
        shape = len(links), 1, self.lattice.volume // 2, d, n
        chi = torch.randn(shape, generator=generator, dtype=links.dtype).to(links.device)
        phi = operator.apply_even_odd(chi, adjoint=True)
        if self.heavier is not None:
            heavier = DiracSolver(operator.with_mass(self.heavier), _TOLERANCE)
            phi = heavier.solve_even_odd(phi, adjoint=True)
        self.phi = phi

    def __call__(self, links: Tensor) -> Tensor:
        """Return S, (batch,) float64, of links (batch, D, V, N, N) complex128."""
        operator = self._build_operator(links)
        x = self._solve(operator, _TOLERANCE)
        return torch.view_as_real(operator.apply_even_odd(x)).square().flatten(1).sum(1)

    def force(self, links: Tensor) -> Tensor:
        """Return F = -grad S, of the shape of the links.

        With X = (M_1^dagger M_1)^-1 M_2^dagger phi,
        dS = 2 Re phi^dagger dM_2 X - 2 Re (M_1 X)^dagger dM_1 X.
        """
        operator = self._build_operator(links)
        x = self._solve(operator, _FORCE_TOLERANCE)
        by_links = -operator.differentiate_even_odd(operator.apply_even_odd(x), x)
        if self.heavier is not None:
            heavier = operator.with_mass(self.heavier)
            by_links = by_links + heavier.differentiate_even_odd(self._require_phi(), x)
        return project_to_algebra(links @ by_links.mH)

    def _build_operator(self, links: Tensor) -> DiracOperator:
        return DiracOperator(links, self.lattice.extents, self.kappa, self.two_kappa_mu)

    def _solve(self, operator: DiracOperator, tolerance: float) -> Tensor:
        """Return X, of the shape of phi."""
        phi = self._require_phi()
        if self.heavier is not None:
            phi = operator.with_mass(self.heavier).apply_even_odd(phi, adjoint=True)
        return DiracSolver(operator, tolerance).solve_normal(phi)

    def _require_phi(self) -> Tensor:
        assert self.phi is not None, "pseudofermions are drawn before a trajectory"
        return self.phi
