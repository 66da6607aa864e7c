"""Spectral coupling layers: maps of the eigenvalues of active loops, and thereby of their links.

| symbol (arXiv:2502.00263, 2305.02402) | here                                                    |
|---------------------------------------|---------------------------------------------------------|
| L_mu(x), Eq. 1                        | `loop`: U_mu(x) times the adjoint of a staple in SU(N)  |
| S_mu^act, Eq. 8                       | one plaquette's staple, or a `StapleNetwork`'s          |
| P_SU(N), Eqs. 9 and 10                | `project`: M (M^dag M)^-1/2 over the principal root of  |
|                                       | its determinant                                         |

The map L' = W L has a conjugation-equivariant W, and U' = W U.
"""

from math import prod

import torch
from torch import Tensor

from pipeline_gauge_flows.graph.context import Context, find_frozen_numbers
from pipeline_gauge_flows.graph.masks import Update
from pipeline_gauge_flows.model.features import (
    Conditioner,
    compute_shape_features,
    compute_staple_traces,
)
from pipeline_gauge_flows.model.layer import Layer, Moved
from pipeline_gauge_flows.model.staples import StapleNetwork
from pipeline_gauge_flows.options import SpectralOptions
from pipeline_kernels.su3 import project, spectral_map


class SpectralLayer(Layer):
    """Rational-quadratic splines of the canonical eigenangles of active loops.

    Args:
        update: Update with the active links.
        options: Loops, splines and context.
        dimension: D.
        n_colours: N.
    """

    def __init__(
        self, update: Update, options: SpectralOptions, dimension: int, n_colours: int
    ) -> None:
        super().__init__(update)
        numbers = find_frozen_numbers(update, dimension)
        self._plaquette = numbers.index(update.plaquette)
        self._shape = (n_colours - 1, 3 * options.bins + 1)
        self.staples = None
        n_paths, n_more = len(numbers) - 1, 0
        if options.check_learned(update.pattern):
            loops = options.staples
            self.staples = StapleNetwork(
                dimension, loops.width, loops.n_layers, update.plaquette, loops.gain
            )
            n_paths, n_more = n_paths + 1, n_colours - 1
        n_features = (1 if n_colours == 2 else 2) * n_paths + n_more
        self.conditioner = Conditioner(n_features, options.hidden, prod(self._shape))

    def move(self, active: Tensor, links: Tensor, context: Context, inverse: bool) -> Moved:
        """Map the active links."""
        staples, features = self._compute_staples(links, context)
        parameters = self.conditioner(features).unflatten(-1, self._shape)
        loop = active @ staples.mH
        turn, log_det = spectral_map(loop.flatten(0, 1), parameters.flatten(0, 1), inverse=inverse)
        return turn.view_as(active) @ active, log_det.view(active.shape[:2])

    def _compute_staples(self, links: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        """Return staples in SU(N), (batch, n_active, N, N), and features of the active links."""
        paths = context.paths.multiply_links(links.flatten(1, 2))
        if self.staples is None:
            k = self._plaquette
            others = torch.cat([paths[:, :, :k], paths[:, :, k + 1 :]], dim=2)
            return paths[:, :, k], compute_staple_traces(others, paths[:, :, k])
        raw = self.staples(links, paths, context)
        staples = project(raw)
        features = [compute_staple_traces(paths, staples), compute_shape_features(raw)]
        return staples, torch.cat(features, dim=-1)
