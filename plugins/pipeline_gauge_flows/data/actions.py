"""Gauge actions from plaquettes and rectangles, with analytic forces.

| symbol           | here                                                                      |
|------------------|---------------------------------------------------------------------------|
| S                | `GaugeAction.__call__`                                                    |
| beta, lambda     | `ActionOptions.beta`, `ActionOptions.anisotropy`                          |
| c0, c1           | `ActionOptions.c0`, `ActionOptions.c1`                                    |

Results are float64 for links of any precision.
"""

from functools import cached_property

import torch
from torch import Tensor

from pipeline_gauge_flows.data.datasets import ActionOptions
from pipeline_gauge_flows.data.lattice import Lattice, make_neighbours
from pipeline_gauge_flows.data.loops import compute_real_trace, project_to_algebra, sum_plaquettes
from pipeline_kernels.su3 import plaquette_staples, staple_layer

__all__ = ["ActionOptions", "GaugeAction", "multiply_gradients"]


class GaugeAction:
    """Action of the gauge field, without quarks.

    Args:
        options: Couplings of the action.
        lattice: The lattice.
    """

    def __init__(self, options: ActionOptions, lattice: Lattice) -> None:
        self.options, self.lattice = options, lattice
        # +1 in time, -1 in space, as in Eq. 16.
        self.signs = torch.tensor([1.0 if mu == 0 else -1.0 for mu, _ in lattice.planes]).double()
        self.weights = options.beta * (options.c0 + options.anisotropy * self.signs)
        """Coefficient of -Re tr P / N in each plane, (planes,)."""
        self.rectangle_weight = options.beta * options.c1

    def __call__(self, links: Tensor) -> Tensor:
        """Return S, (batch,) float64, of links (batch, D, V, N, N)."""
        value = -(sum_plaquettes(links, self.lattice) @ self.weights.to(links.device))
        if self.rectangle_weight != 0:
            value = value - self.rectangle_weight * self.sum_rectangles(links)
        return value / self.lattice.n_colours

    def sum_rectangles(self, links: Tensor) -> Tensor:
        """Return the sum of Re tr over all 1x2 rectangles of both orientations, (batch,)."""
        forward, _ = make_neighbours(self.lattice, links.device)
        total = torch.zeros(len(links), dtype=torch.float64, device=links.device)
        for mu in range(self.lattice.dimension):
            double = links[:, mu] @ links[:, mu, forward[mu]]
            end = forward[mu, forward[mu]]
            for nu in range(self.lattice.dimension):
                if nu != mu:
                    there = double @ links[:, nu, end]
                    back = links[:, nu] @ double[:, forward[nu]]
                    total = total + compute_real_trace(there, back).sum(1)
        return total

    def refresh(self, links: Tensor, generator: torch.Generator) -> None:
        """Do nothing: there are no auxiliary fields."""

    def compute_identity_terms(self, links: Tensor) -> tuple[Tensor, Tensor]:
        """Return |grad S|^2 and the Laplacian of S, each (batch,) float64.

        Their expectation values are equal in an ensemble of this action, since the integral of
        div(exp(-S) grad S) over the group is zero; other terms of the action add the product of
        grad S with their gradients to the first.

        Raises:
            ValueError: Rectangles wind around an extent of 2, where the Laplacian differs.
        """
        if self.rectangle_weight != 0 and min(self.lattice.extents) == 2:
            raise ValueError("rectangles around an extent of 2 hold a link twice")
        n = self.lattice.n_colours
        force = self.force(links)
        square = multiply_gradients(force, force)
        # Every link of a loop contributes the quadratic Casimir times the loop.
        loops = 4 * (sum_plaquettes(links, self.lattice) @ self.weights.to(links.device))
        if self.rectangle_weight != 0:
            loops = loops + 6 * self.rectangle_weight * self.sum_rectangles(links)
        return square, (n**2 - 1) / (2 * n) * loops / n

    def force(self, links: Tensor) -> Tensor:
        """Return the force on the momenta, (batch, D, V, N, N) in the algebra.

        It is F = -grad S, where dS/dt = -2 tr(X grad S) if every link moves as exp(t X) U.
        """
        neighbours = make_neighbours(self.lattice, links.device)
        rows, row = self._staple_weights
        rows = rows.to(links.device, links.real.dtype)
        sums = staple_layer(links.unsqueeze(1), rows, *neighbours)  # (batch, rows, D, V, N, N)
        total = sums[:, row, range(self.lattice.dimension)]
        if self.rectangle_weight != 0:
            staples = plaquette_staples(links, *neighbours)
            total = total + self.rectangle_weight * self._sum_rectangle_staples(links, staples)
        return project_to_algebra(links @ total.mH) * (-0.5 / self.lattice.n_colours)

    @cached_property
    @torch.inference_mode(False)
    def _staple_weights(self) -> tuple[Tensor, list[int]]:
        """Return distinct rows of weights for the kernel, float64, and the row of each direction.

        A row starts with 0 for the link itself, followed by the staples R_nu and L_nu.
        """
        weights, plane = self.weights.tolist(), self.lattice.planes.index
        directions = range(self.lattice.dimension)
        rows = []
        for mu in directions:
            others = [weights[plane((min(mu, nu), max(mu, nu)))] for nu in directions if nu != mu]
            rows.append([0.0, *others, *others])
        different = [row for number, row in enumerate(rows) if row not in rows[:number]]
        table = torch.tensor(different, dtype=torch.float64)
        return table, [different.index(row) for row in rows]

    def _sum_rectangle_staples(self, links: Tensor, staples: Tensor) -> Tensor:
        """Return the sum of the rectangle staples of each link, (batch, D, V, N, N).

        Args:
            links: (batch, D, V, N, N).
            staples: Staples of the plaquettes, (batch, 2 (D - 1), D, V, N, N).
        """
        forward, backward = make_neighbours(self.lattice, links.device)
        others = self.lattice.dimension - 1
        totals = []
        for mu in range(self.lattice.dimension):
            along, link = staples[:, :, mu], links[:, mu]
            ahead, behind = forward[mu], backward[mu]
            # Two links long: U_mu(x) is the first or the second.
            total = (along @ along[:, :, ahead]).sum(1) @ link[:, ahead].mH
            total = total + link[:, behind].mH @ (along[:, :, behind] @ along).sum(1)
            directions = [nu for nu in range(self.lattice.dimension) if nu != mu]
            for k, nu in enumerate(directions):
                side, up, down = links[:, nu], forward[nu], backward[nu]
                total = total + side @ along[:, k, up] @ side[:, ahead].mH
                moved = side[:, down].mH @ along[:, others + k, down]
                total = total + moved @ side[:, ahead[down]]
            totals.append(total)
        return torch.stack(totals, dim=1)


def multiply_gradients(a: Tensor, b: Tensor) -> Tensor:
    """Return the inner product of two gradients, (batch,) float64, in the metric -2 tr X Y."""
    return 2 * compute_real_trace(a, b).flatten(1).sum(1)
