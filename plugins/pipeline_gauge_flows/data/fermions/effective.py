"""Effective action of the links, with exact quark determinants for small lattices."""

import torch
from torch import Tensor

from pipeline_gauge_flows.data.actions import GaugeAction
from pipeline_gauge_flows.data.datasets import ActionOptions, require_fermions
from pipeline_gauge_flows.data.fermions.determinant import compute_log_determinant
from pipeline_gauge_flows.data.lattice import Lattice


class EffectiveAction:
    """S of the gauge field, and -2 log |det M| of a doublet of quarks if there is one.

    Args:
        options: The action.
        lattice: The lattice.

    Attributes:
        gauge: The term of the gauge field.

    Raises:
        ValueError: There are quarks, and the lattice does not support them.
    """

    def __init__(self, options: ActionOptions, lattice: Lattice) -> None:
        if options.fermions is not None:
            require_fermions(lattice.extents)
        self.options, self.lattice = options, lattice
        self.gauge = GaugeAction(options, lattice)

    def __call__(self, links: Tensor) -> Tensor:
        """Return S, (batch,) float64, of links (batch, D, V, N, N); differentiable by the links."""
        value, quarks = self.gauge(links), self.options.fermions
        if quarks is None:
            return value
        double = links.to(torch.complex128)
        return value - 2 * compute_log_determinant(
            double, self.lattice, quarks.kappa, quarks.two_kappa_mu
        )
