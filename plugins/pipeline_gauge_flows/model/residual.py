"""Residual layers: steps of active links along the gradient of a sum of their loops.

U' = exp(g) U with g the part of U Sigma^dag in the algebra, Sigma = sum_k epsilon_k S_k over paths
S_k of frozen links and epsilon_k from the context (arXiv:2401.10874; stout smearing with masks).

Bijectivity: for X in the algebra dU' U'^dag = exp(g) (X + Psi M X) exp(-g) if dU = X U, with M X
the part of X U Sigma^dag in the algebra and Psi = (1 - exp(-ad_g)) / ad_g (`residual_step`). The
norm of Psi is at most 1, as ad_g is antisymmetric, and the norm of M at most the largest singular
value of Sigma. So if the sum of abs(epsilon_k) |S_k| is below 1, the determinant is positive
everywhere; and a local diffeomorphism of SU(N), which is compact and simply connected, onto itself
is bijective.
"""

from __future__ import annotations

from math import sqrt

import torch
from torch import Tensor

from pipeline_gauge_flows.data.lattice import Lattice
from pipeline_gauge_flows.graph.frozen_paths import find_frozen_numbers, find_frozen_paths
from pipeline_gauge_flows.graph.masks import Update
from pipeline_gauge_flows.model.context import (
    Conditioner,
    compute_loop_traces,
    compute_shape_features,
    count_loop_traces,
)
from pipeline_gauge_flows.model.convolution import make_convolution
from pipeline_gauge_flows.model.layer import Layer, Moved
from pipeline_gauge_flows.model.staples import StapleNetwork
from pipeline_gauge_flows.options import ResidualOptions
from pipeline_kernels.su3 import residual_step


class ResidualLayer(Layer):
    """Masked step of a learned gradient flow.

    Args:
        update: Update with the active links.
        options: Loops, largest step and context.
        dimension: D.
        n_colours: N.
    """

    def __init__(
        self, update: Update, options: ResidualOptions, dimension: int, n_colours: int
    ) -> None:
        super().__init__(update)
        self._rectangles, self._largest = options.rectangles, options.largest_step
        numbers = find_frozen_numbers(update, dimension, rectangles=options.rectangles)
        self._n_paths, n_more = len(numbers), 0
        self.staples = None
        if options.check_learned(update.pattern):
            loops = options.staples
            self.staples = StapleNetwork(
                dimension, loops.width, loops.n_layers, [update.plaquette], loops.gain
            )
            n_more = n_colours - 1
        self._n_terms = self._n_paths + (self.staples is not None)
        n_features = count_loop_traces(self._n_paths, n_colours) + n_more
        self.convolution = make_convolution(options.convolution, dimension, n_colours)
        if self.convolution is not None:
            n_features += self.convolution.n_features
        self.conditioner = Conditioner(n_features, options.hidden, self._n_terms)

    def move(self, active: Tensor, links: Tensor, lattice: Lattice, inverse: bool) -> Moved:
        """Map the active links."""
        paths, weights = self._weigh_paths(links, lattice)
        moved, log_det = residual_step(
            active.flatten(0, 1), paths.flatten(0, 1), weights.flatten(0, 1), inverse
        )
        return moved.view_as(active), log_det.view(active.shape[:2])

    def _weigh_paths(self, links: Tensor, lattice: Lattice) -> tuple[Tensor, Tensor]:
        """Return paths (batch, n_active, n, N, N), weights epsilon (batch, n_active, n) float64."""
        table = find_frozen_paths(self.update, lattice, links.device, rectangles=self._rectangles)
        paths = table.multiply_links(links.flatten(1, 2))
        features = compute_loop_traces(paths)
        if self.staples is not None:
            raw = self.staples(links, paths, self.update, lattice)[:, :, 0]
            features = torch.cat([features, compute_shape_features(raw)], dim=-1)
            # The Frobenius norm bounds the singular values.
            size = raw.abs().square().sum((-2, -1), keepdim=True).sqrt()
            paths = torch.cat([paths, (raw / size).unsqueeze(2)], dim=2)
        if self.convolution is not None:
            more = self.convolution(links, self.update, lattice)
            features = torch.cat([features, more], dim=-1)
        return paths, self._bound_weights(self.conditioner(features))

    def _bound_weights(self, parameters: Tensor) -> Tensor:
        """Return epsilon_k, with a sum of magnitudes below the largest step."""
        # Cauchy-Schwarz: sum |a_k| <= sqrt(n) |a|.
        square = parameters.square().sum(-1, keepdim=True)
        return self._largest / sqrt(self._n_terms) * parameters / (1 + square).sqrt()
