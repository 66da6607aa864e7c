"""Gradient flow of the Wilson action (Luescher, JHEP 08 (2010) 071, arXiv:1006.4518).

dV/dt = -g0^2 (dS/dV) V, integrated by his third-order Runge-Kutta method (appendix C).
"""

from __future__ import annotations

from torch import Tensor

from pipeline_gauge_flows.data.actions import ActionOptions, GaugeAction
from pipeline_gauge_flows.data.lattice import Lattice
from pipeline_kernels.su3 import exponential


def integrate_gradient_flow(links: Tensor, lattice: Lattice, time: float, n_steps: int) -> Tensor:
    """Return the links after a flow time.

    Args:
        links: (batch, D, V, N, N).
        lattice: The lattice.
        time: Flow time in units of the squared lattice spacing.
        n_steps: Integration steps; from random links, a step of 0.02 is off by
            1e-4 after a time of 2.

    Returns:
        (batch, D, V, N, N).
    """
    # With beta = 2 N the force of the Wilson action equals the force of the flow.
    action = GaugeAction(ActionOptions(beta=2.0 * lattice.n_colours), lattice)
    step = time / n_steps
    for _ in range(n_steps):
        first = step * action.force(links)
        links = exponential(first / 4) @ links
        second = (8 / 9) * step * action.force(links) - (17 / 36) * first
        links = exponential(second) @ links
        third = (3 / 4) * step * action.force(links) - second
        links = exponential(third) @ links
    return links
