"""Residual layers: each active link moves a step along the gradient of a sum of frozen loops.

U' = exp(g) U with g the part of U Sigma^dag in the algebra, Sigma = sum_k epsilon_k S_k over paths
S_k beside the link and epsilon_k from the context (arXiv:2401.10874; stout smearing with masks).

Bijectivity: for X in the algebra dU' U'^dag = exp(g) [X + Phi(-ad_g) M X] exp(-g) if dU = X U, with
M X the part of X U Sigma^dag in the algebra and Phi(z) = (exp(z) - 1) / z. The norm of Phi(-ad_g)
is at most 1, as ad_g is antisymmetric, and that of M at most the largest singular value of Sigma.
So if sum_k abs(epsilon_k) times that of S_k is below 1 the determinant is positive everywhere; and
a local diffeomorphism of SU(N), which is compact and simply connected, onto itself is one to one.
"""

from __future__ import annotations

from math import sqrt
from typing import Final

import torch
from torch import Tensor

from pipeline_gauge_flows import algebra
from pipeline_gauge_flows.context import (
    Conditioner,
    compute_loop_traces,
    compute_shape_features,
    count_loop_traces,
)
from pipeline_gauge_flows.convolution import make_convolution
from pipeline_gauge_flows.frozen_paths import find_frozen_numbers, find_frozen_paths
from pipeline_gauge_flows.lattice import Lattice
from pipeline_gauge_flows.layer import Layer, Moved
from pipeline_gauge_flows.masks import Update
from pipeline_gauge_flows.options import ResidualOptions
from pipeline_gauge_flows.staples import StapleNetwork
from pipeline_kernels.su3 import exponential

_PICARD: Final = 4
"""Fixed-point iterations before those of Newton."""
_ITERATIONS: Final = 60
_TOLERANCE: Final = {torch.complex64: 1e-6, torch.complex128: 2e-14}


class ResidualLayer(Layer):
    """One masked step of a learned gradient flow.

    Args:
        update: Which links are active.
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
        sigma = self._sum_paths(links, lattice)
        u = active.to(torch.complex128)
        if inverse:
            u = _attach_derivatives(u, sigma, _solve(u, sigma, _TOLERANCE[active.dtype]))
            return u.to(active.dtype), -_compute_log_det(_compute_slope(u @ sigma.mH)[1])
        moved, log_det = _map_forward(u, sigma)
        return moved.to(active.dtype), log_det

    def _sum_paths(self, links: Tensor, lattice: Lattice) -> Tensor:
        """Return the weighted sum of paths, (batch, n_active, N, N) complex128."""
        table = find_frozen_paths(self.update, lattice, links.device, rectangles=self._rectangles)
        paths = table.multiply_links(links.flatten(1, 2))
        features = compute_loop_traces(paths)
        if self.staples is not None:
            raw = self.staples(links, paths, self.update, lattice)[:, :, 0]
            features = torch.cat([features, compute_shape_features(raw)], dim=-1)
            # The norm of Frobenius bounds the singular values.
            size = raw.abs().square().sum((-2, -1), keepdim=True).sqrt()
            paths = torch.cat([paths, (raw / size).unsqueeze(2)], dim=2)
        if self.convolution is not None:
            more = self.convolution(links, self.update, lattice)
            features = torch.cat([features, more], dim=-1)
        steps = self._bound_weights(self.conditioner(features))
        return (steps[..., None, None] * paths.to(torch.complex128)).sum(2)

    def _bound_weights(self, parameters: Tensor) -> Tensor:
        """Return epsilon_k, the sum of whose magnitudes is below the largest step."""
        # By Cauchy and Schwarz: sum |a_k| <= sqrt(n) |a|.
        square = parameters.square().sum(-1, keepdim=True)
        return self._largest / sqrt(self._n_terms) * parameters / (1 + square).sqrt()


def _map_forward(u: Tensor, sigma: Tensor) -> Moved:
    """Return exp(g) U and the log-determinant of the map."""
    loop = u @ sigma.mH
    g, slope = _compute_slope(loop)
    turned = exponential(algebra.make_element(g, u.shape[-1])) @ u
    return turned, _compute_log_det(slope)


def _compute_log_det(slope: Tensor) -> Tensor:
    log_det: Tensor = torch.linalg.slogdet(slope).logabsdet
    return log_det


def _compute_slope(loop: Tensor) -> tuple[Tensor, Tensor]:
    """Return the components of g, (..., n), and 1 + Phi(-ad_g) M, (..., n, n)."""
    g = algebra.compute_components(loop)
    slope = algebra.compute_exponential_slope(
        algebra.compute_adjoint(g, loop.shape[-1]), algebra.compute_left_product(loop)
    )
    return g, slope + torch.eye(slope.shape[-1], dtype=slope.dtype, device=slope.device)


def _compute_newton_step(u: Tensor, moved: Tensor, sigma: Tensor) -> Tensor:
    """Return the step X, (..., N, N) in the algebra, by which exp(-X) U maps closer to `moved`.

    The slope counts as a constant.
    """
    n_colours = u.shape[-1]
    loop = u @ sigma.mH
    g, slope = _compute_slope(loop)
    turn = exponential(algebra.make_element(g, n_colours))
    error = turn @ u @ moved.mH  # 1 at the solution
    error = turn.mH @ error @ turn  # from the right, as the slope is
    step = torch.linalg.solve(slope.detach(), algebra.compute_components(error))
    return algebra.make_element(step, n_colours)


@torch.no_grad()
def _solve(moved: Tensor, sigma: Tensor, tolerance: float) -> Tensor:
    """Return U whose image is given.

    Raises:
        RuntimeError: The iteration does not end, which no step below 1 should let happen.
    """
    u = moved
    for _ in range(_PICARD):
        g = algebra.compute_components(u @ sigma.mH)
        u = exponential(-algebra.make_element(g, u.shape[-1])) @ moved
    for _ in range(_ITERATIONS):
        step = _compute_newton_step(u, moved, sigma)
        u = exponential(-step) @ u
        if not float(step.abs().max()) > tolerance:
            return u
    raise RuntimeError(f"a residual layer has not been inverted: last step {step.abs().max():.3g}")


def _attach_derivatives(moved: Tensor, sigma: Tensor, solution: Tensor) -> Tensor:
    """Return the solution, with the derivatives of the implicit function."""
    if not torch.is_grad_enabled():
        return solution
    return solution - _compute_newton_step(solution, moved, sigma) @ solution
