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

from math import sqrt
from typing import Final

from torch import Tensor

from pipeline_gauge_flows.graph.context import Context, find_frozen_numbers
from pipeline_gauge_flows.graph.masks import Update
from pipeline_gauge_flows.model.features import Conditioner, compute_loop_traces, count_loop_traces
from pipeline_gauge_flows.model.layer import Layer, Moved
from pipeline_gauge_flows.options import ResidualOptions
from pipeline_kernels.su3 import residual_step

_LARGEST: Final = 0.9
"""Bound on the sum over paths of the magnitudes of their weights; below 1 layers are bijective."""


class ResidualLayer(Layer):
    """Masked step of a learned gradient flow.

    Args:
        update: Update with the active links.
        options: Paths and context.
        dimension: D.
        n_colours: N.
    """

    def __init__(
        self, update: Update, options: ResidualOptions, dimension: int, n_colours: int
    ) -> None:
        super().__init__(update, rectangles=options.rectangles)
        self._n_paths = len(find_frozen_numbers(update, dimension, rectangles=options.rectangles))
        n_features = count_loop_traces(self._n_paths, n_colours)
        self.conditioner = Conditioner(n_features, options.hidden, self._n_paths)

    def move(self, active: Tensor, links: Tensor, context: Context, inverse: bool) -> Moved:
        """Map the active links."""
        paths = context.paths.multiply_links(links.flatten(1, 2))
        weights = self._bound_weights(self.conditioner(compute_loop_traces(paths)))
        moved, log_det = residual_step(
            active.flatten(0, 1), paths.flatten(0, 1), weights.flatten(0, 1), inverse
        )
        return moved.view_as(active), log_det.view(active.shape[:2])

    def _bound_weights(self, parameters: Tensor) -> Tensor:
        """Return epsilon_k, with a sum of magnitudes below the largest step."""
        # Cauchy-Schwarz: sum |a_k| <= sqrt(n) |a|.
        square = parameters.square().sum(-1, keepdim=True)
        return _LARGEST / sqrt(self._n_paths) * parameters / (1 + square).sqrt()
