"""Hybrid Monte Carlo of gauge links.

| symbol                     | here                                                              |
|----------------------------|-------------------------------------------------------------------|
| H = -sum tr P^2 + S        | `HybridMonteCarlo.energy`; P is in the algebra of SU(N)           |
| dU/dt = P U, dP/dt = F     | `HybridMonteCarlo.integrate`; F is `GaugeAction.force`            |
| dH                         | `Trajectory.violation`: H at the end less H at the start          |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

import torch
from torch import Tensor

from pipeline_gauge_flows.loops import project_to_algebra
from pipeline_kernels.su3 import exponential

_LAMBDA: Final = 0.1931833275037836
"""Of the second-order minimum-norm integrator: Omelyan, Mryglod and Folk, Comput. Phys. Commun.
151, 272 (2003); Takaishi and de Forcrand, Phys. Rev. E 73, 036706 (2006)."""


class Action(Protocol):
    """What a trajectory needs of an action, such as `GaugeAction`."""

    def __call__(self, links: Tensor) -> Tensor:
        """Return S, (batch,) float64."""
        ...

    def force(self, links: Tensor) -> Tensor:
        """Return F = -grad S, of the shape of the links."""
        ...


@dataclass(frozen=True)
class Trajectory:
    """The end of a trajectory of each chain, after the acceptance test.

    Attributes:
        links: (batch, D, V, N, N); where the trajectory started if it was not accepted.
        accepted: (batch,) bool.
        violation: dH, (batch,) float64.
    """

    links: Tensor
    accepted: Tensor
    violation: Tensor


class HybridMonteCarlo:
    """Trajectories of several Markov chains at once.

    Args:
        action: The action.
        n_steps: Integration steps of a trajectory.
        tau: Its length.
        generator: Of momenta and acceptance tests, on the CPU.
    """

    def __init__(
        self, action: Action, n_steps: int, tau: float, generator: torch.Generator
    ) -> None:
        self.action, self.n_steps, self.tau, self.generator = action, n_steps, tau, generator

    def run_trajectory(self, links: Tensor) -> Trajectory:
        """Integrate from fresh momenta and accept by Metropolis' test.

        Raises:
            ValueError: The action of the start is not finite.
        """
        momenta = self.draw_momenta(links)
        start = self.energy(links, momenta)
        if not torch.isfinite(start).all():
            raise ValueError(
                f"the action of the links is {start[~torch.isfinite(start)][0].item()} before a "
                "trajectory; check the links that it starts from"
            )
        moved, momenta = self.integrate(links, momenta)
        violation = self.energy(moved, momenta) - start
        draws = torch.rand(len(links), generator=self.generator, dtype=torch.float64)
        # A violation that is not finite fails every comparison: such a trajectory is refused.
        accepted = draws.to(links.device).log() < -violation
        chosen = accepted[:, None, None, None, None]
        return Trajectory(torch.where(chosen, moved, links), accepted, violation)

    def draw_momenta(self, links: Tensor) -> Tensor:
        """Draw momenta with density exp(tr P^2), of the shape of the links."""
        gauss = torch.randn(links.shape, generator=self.generator, dtype=torch.complex128)
        return project_to_algebra(gauss).to(links.device)

    def energy(self, links: Tensor, momenta: Tensor) -> Tensor:
        """Return H, (batch,) float64."""
        kinetic = torch.view_as_real(momenta).square().flatten(1).sum(1)
        return kinetic + self.action(links)

    def integrate(self, links: Tensor, momenta: Tensor) -> tuple[Tensor, Tensor]:
        """Return links and momenta at the end of a trajectory, by Omelyan's integrator."""
        step = self.tau / self.n_steps
        momenta = momenta + _LAMBDA * step * self.action.force(links)
        for number in range(self.n_steps):
            links = exponential(step / 2 * momenta) @ links
            momenta = momenta + (1 - 2 * _LAMBDA) * step * self.action.force(links)
            links = exponential(step / 2 * momenta) @ links
            last = number == self.n_steps - 1
            momenta = momenta + (1 if last else 2) * _LAMBDA * step * self.action.force(links)
        return links, momenta

    def measure_irreversibility(self, links: Tensor) -> float:
        """Return the largest change of an element of a link by going there and back."""
        momenta = self.draw_momenta(links)
        back, _ = self.integrate(*_reverse(self.integrate(links, momenta)))
        return float((back - links).abs().max())


def _reverse(state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    links, momenta = state
    return links, -momenta
