"""Effective actions of the links with exact quark determinants, for small lattices."""

from __future__ import annotations

import torch
from torch import Tensor

from pipeline_gauge_flows.data.actions import GaugeAction, WholeAction
from pipeline_gauge_flows.data.datasets import ActionOptions, require_fermions
from pipeline_gauge_flows.data.fermions.determinant import compute_log_determinant
from pipeline_gauge_flows.data.lattice import Lattice
from pipeline_gauge_flows.data.loops import project_to_algebra


def make_action(options: ActionOptions, lattice: Lattice) -> WholeAction:
    """Return an action as a function of the links, with or without quarks.

    Raises:
        ValueError: There are quarks, and the lattice does not support them.
    """
    kind = GaugeAction if options.fermions is None else EffectiveAction
    return kind(options, lattice)


class EffectiveAction:
    """Effective action: S of the gauge field, and -2 log |det M| of a doublet of quarks.

    Args:
        options: The action, with quarks.
        lattice: The lattice.

    Raises:
        ValueError: The lattice does not support quarks.
    """

    def __init__(self, options: ActionOptions, lattice: Lattice) -> None:
        assert options.fermions is not None
        require_fermions(lattice.extents)
        self.options, self.lattice = options, lattice
        self._gauge, self._quarks = GaugeAction(options, lattice), options.fermions

    @property
    def gauge(self) -> GaugeAction:
        """The term of the gauge field."""
        return self._gauge

    def __call__(self, links: Tensor) -> Tensor:
        """Return S, (batch,) float64, of links (batch, D, V, N, N); differentiable by the links."""
        return self.gauge(links) - 2 * self._compute_log_determinant(links)

    def force(self, links: Tensor) -> Tensor:
        """Return F = -grad S in the algebra, of the shape of the links."""
        with torch.enable_grad():
            leaf = links.detach().requires_grad_()
            total = self._compute_log_determinant(leaf).sum()
            (gradient,) = torch.autograd.grad(total, leaf)
        return self.gauge.force(links) - project_to_algebra(links @ gradient.mH)

    def refresh(self, links: Tensor, generator: torch.Generator) -> None:
        """Do nothing: there are no auxiliary fields."""

    def _compute_log_determinant(self, links: Tensor) -> Tensor:
        quarks = self._quarks
        double = links.to(torch.complex128)
        return compute_log_determinant(double, self.lattice, quarks.kappa, quarks.two_kappa_mu)
