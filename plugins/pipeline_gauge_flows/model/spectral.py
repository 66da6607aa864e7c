"""Spectral coupling layers: maps of the eigenvalues of active loops, and thereby of their links.

| symbol (arXiv:2502.00263, 2305.02402) | here                                                    |
|---------------------------------------|---------------------------------------------------------|
| L_mu(x), Eq. 1                        | `loop`: U_mu(x) times the adjoint of a staple in SU(N)  |
| S_mu^act, Eq. 8                       | one plaquette's staple, or a `StapleNetwork`'s          |
| P_SU(N), Eqs. 9 and 10                | `project`: M (M^dag M)^-1/2 over the principal root of  |
|                                       | its determinant                                         |

The map L' = W L has a conjugation-equivariant W, and U' = W U. A link with several
active loops is moved by each in turn: all staples are frozen, so that the
logarithms of the determinants add up.
"""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor

from pipeline_gauge_flows.data.lattice import Lattice
from pipeline_gauge_flows.graph.frozen_paths import find_frozen_numbers, find_frozen_paths
from pipeline_gauge_flows.graph.masks import Update
from pipeline_gauge_flows.model.context import (
    Conditioner,
    compute_shape_features,
    compute_staple_traces,
)
from pipeline_gauge_flows.model.convolution import make_convolution
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
        numbers, n_loops = find_frozen_numbers(update, dimension), options.active_loops
        first = numbers.index(update.plaquette)
        self._plaquettes = [(first + k) % len(numbers) for k in range(n_loops)]
        self._shape = (n_loops, n_colours - 1, 3 * options.bins + 1)
        self.staples = None
        n_paths, n_more = len(numbers) - 1, 0
        if options.check_learned(update.pattern):
            loops, starts = options.staples, [numbers[k] for k in self._plaquettes]
            self.staples = StapleNetwork(dimension, loops.width, loops.n_layers, starts, loops.gain)
            n_paths, n_more = n_paths + 1, n_colours - 1
        n_features = n_loops * ((1 if n_colours == 2 else 2) * n_paths + n_more)
        self.convolution = make_convolution(options.convolution, dimension, n_colours)
        if self.convolution is not None:
            n_features += self.convolution.n_features
        self.conditioner = Conditioner(n_features, options.hidden, prod(self._shape))

    def move(self, active: Tensor, links: Tensor, lattice: Lattice, inverse: bool) -> Moved:
        """Map the active links."""
        staples, features = self._compute_context(links, lattice)
        parameters = self.conditioner(features).unflatten(-1, self._shape)
        loops, log_dets = range(len(self._plaquettes)), []
        for k in reversed(loops) if inverse else loops:
            loop = active @ staples[:, :, k].mH
            turn, log_det = spectral_map(
                loop.flatten(0, 1), parameters[:, :, k].flatten(0, 1), inverse=inverse
            )
            active = turn.view_as(active) @ active
            log_dets.append(log_det.view(active.shape[:2]))
        return active, torch.stack(log_dets).sum(0)

    def _compute_context(self, links: Tensor, lattice: Lattice) -> tuple[Tensor, Tensor]:
        """Return staples in SU(N), (batch, n_active, n_loops, N, N), and features."""
        paths = find_frozen_paths(self.update, lattice, links.device).multiply_links(
            links.flatten(1, 2)
        )
        if self.staples is None:
            staples = paths[:, :, self._plaquettes]
            features = [
                compute_staple_traces(
                    torch.cat([paths[:, :, :k], paths[:, :, k + 1 :]], dim=2), paths[:, :, k]
                )
                for k in self._plaquettes
            ]
        else:
            raw = self.staples(links, paths, self.update, lattice)
            staples = project(raw)
            features = [compute_staple_traces(paths, staple) for staple in staples.unbind(2)] + [
                compute_shape_features(raw).flatten(2)
            ]
        if self.convolution is not None:
            features.append(self.convolution(links, self.update, lattice))
        return staples, torch.cat(features, dim=-1)
