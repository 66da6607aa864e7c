"""Hybrid Monte Carlo of gauge links.

| symbol                     | here                                                              |
|----------------------------|-------------------------------------------------------------------|
| H = -sum tr P^2 + S        | `HybridMonteCarlo.energy`; P is in the algebra of SU(N)           |
| dU/dt = P U, dP/dt = F     | `HybridMonteCarlo.integrate`; F is the `force` of all terms       |
| dH                         | `Trajectory.violation`: H at the end less H at the start          |

S is a sum of terms. Terms of one time scale move the momenta together; in each half of its step the
next faster scale takes all of its own steps, and the fastest moves the links: Sexton and
Weingarten, Nucl. Phys. B 380, 665 (1992). Pseudofermions are redrawn before each
trajectory.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from pipeline_gauge_flows.data.actions import GaugeAction
from pipeline_gauge_flows.data.fermions.pseudofermions import Pseudofermions
from pipeline_gauge_flows.data.loops import project_to_algebra
from pipeline_kernels.su3 import exponential

_LAMBDA: Final = 0.1931833275037836
"""Second-order minimum-norm integrator: Omelyan, Mryglod and Folk, Comput. Phys. Commun.
151, 272 (2003); Takaishi and de Forcrand, Phys. Rev. E 73, 036706 (2006)."""


@dataclass(frozen=True)
class TimeScale:
    """Terms of an action that are integrated with one step.

    Attributes:
        terms: The terms.
        n_steps: Steps in a half step of the next slower scale; for the slowest, in a trajectory.
    """

    terms: Sequence[GaugeAction | Pseudofermions]
    n_steps: int

    def force(self, links: Tensor) -> Tensor:
        """Return F of all terms together, of the shape of the links."""
        total = self.terms[0].force(links)
        for term in self.terms[1:]:
            total = total + term.force(links)
        return total


@dataclass(frozen=True)
class Trajectory:
    """End of a trajectory of each chain, after the acceptance test.

    Attributes:
        links: (batch, D, V, N, N); the start of the trajectory if it was rejected.
        accepted: (batch,) bool.
        violation: dH, (batch,) float64.
    """

    links: Tensor
    accepted: Tensor
    violation: Tensor


class HybridMonteCarlo:
    """Trajectories of several Markov chains at once.

    Args:
        scales: Terms of the action by time scale, the fastest first.
        tau: Length of a trajectory.
        generator: Generator of momenta, pseudofermions and acceptance tests, on the CPU.
    """

    def __init__(self, scales: Sequence[TimeScale], tau: float, generator: torch.Generator) -> None:
        self.scales, self.tau, self.generator = scales, tau, generator
        self._forces: list[tuple[Tensor, Tensor] | None] = [None] * len(scales)

    def run_trajectory(self, links: Tensor) -> Trajectory:
        """Integrate from new momenta and pseudofermions; accept by the Metropolis test.

        Raises:
            ValueError: The action at the start is not finite.
        """
        momenta = self.refresh(links)
        start = self.energy(links, momenta)
        if not torch.isfinite(start).all():
            raise ValueError(
                f"the action of the links is {start[~torch.isfinite(start)][0].item()} before a "
                "trajectory; check the links that it starts from"
            )
        moved, momenta = self.integrate(links, momenta)
        violation = self.energy(moved, momenta) - start
        draws = torch.rand(len(links), generator=self.generator, dtype=torch.float64)
        # A violation that is not finite fails every comparison: the trajectory is rejected.
        accepted = draws.to(links.device).log() < -violation
        chosen = accepted[:, None, None, None, None]
        return Trajectory(torch.where(chosen, moved, links), accepted, violation)

    def refresh(self, links: Tensor) -> Tensor:
        """Draw the pseudofermions of all terms, and return momenta."""
        for scale in self.scales:
            for term in scale.terms:
                term.refresh(links, self.generator)
        return self.draw_momenta(links)

    def draw_momenta(self, links: Tensor) -> Tensor:
        """Draw momenta with density exp(tr P^2), of the shape of the links."""
        gauss = torch.randn(links.shape, generator=self.generator, dtype=torch.complex128)
        return project_to_algebra(gauss).to(links.device)

    def energy(self, links: Tensor, momenta: Tensor) -> Tensor:
        """Return H, (batch,) float64."""
        kinetic = torch.view_as_real(momenta).square().flatten(1).sum(1)
        actions = [term(links) for scale in self.scales for term in scale.terms]
        return kinetic + torch.stack(actions).sum(0)

    def integrate(self, links: Tensor, momenta: Tensor) -> tuple[Tensor, Tensor]:
        """Return links and momenta at the end of a trajectory, by Omelyan's integrator."""
        self._forces = [None] * len(self.scales)
        return self._advance(len(self.scales) - 1, self.tau, links, momenta)

    def measure_irreversibility(self, links: Tensor) -> float:
        """Return the largest change of a link element after integrating forth and back."""
        moved, momenta = self.integrate(links, self.refresh(links))
        back, _ = self.integrate(moved, -momenta)
        return float((back - links).abs().max())

    def _advance(
        self, level: int, time: float, links: Tensor, momenta: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Integrate over a time with a time scale and all faster ones."""
        if level < 0:
            return exponential(time * momenta) @ links, momenta
        step = time / self.scales[level].n_steps
        for _ in range(self.scales[level].n_steps):
            momenta = momenta + _LAMBDA * step * self._compute_force(level, links)
            links, momenta = self._advance(level - 1, step / 2, links, momenta)
            momenta = momenta + (1 - 2 * _LAMBDA) * step * self._compute_force(level, links)
            links, momenta = self._advance(level - 1, step / 2, links, momenta)
            momenta = momenta + _LAMBDA * step * self._compute_force(level, links)
        return links, momenta

    def _compute_force(self, level: int, links: Tensor) -> Tensor:
        """Return the force of a time scale; the last force of a step is reused by the next step."""
        last = self._forces[level]
        if last is None or last[0] is not links:
            last = self._forces[level] = links, self.scales[level].force(links)
        return last[1]
