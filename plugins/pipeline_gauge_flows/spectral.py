"""Spectral coupling layers: the eigenvalues of active loops move, and the loops' links with them.

| symbol (arXiv:2502.00263, 2305.02402) | here                                                    |
|---------------------------------------|---------------------------------------------------------|
| L_mu(x), Eq. 1                        | `loop`: U_mu(x) times the adjoint of a staple in SU(N)  |
| S_mu^act, Eq. 8                       | one plaquette's staple, or that of a `StapleNetwork`    |
| P_SU(N), Eqs. 9 and 10                | `project`: M (M^dag M)^-1/2 over the principal root of  |
|                                       | its determinant                                         |

The map L' = W L of class functions has conjugation-equivariant W, and U' = W U.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pipeline_gauge_flows.context import (
    Conditioner,
    compute_shape_features,
    compute_staple_traces,
)
from pipeline_gauge_flows.frozen_paths import find_frozen_numbers, find_frozen_paths
from pipeline_gauge_flows.lattice import Lattice
from pipeline_gauge_flows.layer import Layer, Moved
from pipeline_gauge_flows.masks import Update
from pipeline_gauge_flows.options import SpectralOptions
from pipeline_gauge_flows.staples import StapleNetwork
from pipeline_kernels.su3 import project, spectral_map


class SpectralLayer(Layer):
    """Rational-quadratic splines of the canonical eigenangles of active loops.

    Args:
        update: Which links are active.
        options: Loops, splines and context.
        dimension: D.
        n_colours: N.
    """

    def __init__(
        self, update: Update, options: SpectralOptions, dimension: int, n_colours: int
    ) -> None:
        super().__init__(update)
        numbers = find_frozen_numbers(update, dimension)
        self._plaquette = update.sweep % len(numbers)
        self._shape = (n_colours - 1, 3 * options.bins + 1)
        self.staples = None
        n_paths, n_more = len(numbers) - 1, 0
        if options.check_learned(update.pattern):
            loops = options.staples
            self.staples = StapleNetwork(
                dimension, loops.width, loops.n_layers, numbers[self._plaquette], loops.gain
            )
            n_paths, n_more = n_paths + 1, n_colours - 1
        n_features = (1 if n_colours == 2 else 2) * n_paths + n_more
        n_parameters = self._shape[0] * self._shape[1]
        self.conditioner = Conditioner(n_features, options.hidden, n_parameters)

    def move(self, active: Tensor, links: Tensor, lattice: Lattice, inverse: bool) -> Moved:
        """Map the active links."""
        staple, features = self._compute_context(links, lattice)
        parameters = self.conditioner(features).reshape(-1, *self._shape)
        loop = active @ staple.mH
        turn, log_det = spectral_map(loop.flatten(0, 1), parameters, inverse=inverse)
        return turn.view_as(active) @ active, log_det.view(active.shape[:2])

    def _compute_context(self, links: Tensor, lattice: Lattice) -> tuple[Tensor, Tensor]:
        """Return staples in SU(N), (batch, n_active, N, N), and features of the context."""
        paths = find_frozen_paths(self.update, lattice, links.device).multiply_links(
            links.flatten(1, 2)
        )
        if self.staples is None:
            staple = paths[:, :, self._plaquette]
            others = torch.cat(
                [paths[:, :, : self._plaquette], paths[:, :, self._plaquette + 1 :]], dim=2
            )
            return staple, compute_staple_traces(others, staple)
        raw = self.staples(links, paths, self.update, lattice)
        staple = project(raw)
        traces = compute_staple_traces(paths, staple)
        return staple, torch.cat([traces, compute_shape_features(raw)], dim=-1)
