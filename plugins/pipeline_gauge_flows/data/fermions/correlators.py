"""Meson correlators from propagators: C(t) = sum_x |S(x + t, source)|^2.

S = M^-1, with a sum over spins and colours of both ends. It belongs to the charged pseudoscalar:
by gamma5-hermiticity the propagator of the other flavour, with -mu, is the adjoint of S.
"""

import torch
from torch import Tensor

from pipeline_gauge_flows.data.datasets import FermionOptions
from pipeline_gauge_flows.data.fermions.solver import DiracSolver
from pipeline_gauge_flows.data.fermions.sources import Sources
from pipeline_gauge_flows.data.lattice import Lattice
from pipeline_kernels.dirac import DiracOperator


def correlate_pion(
    links: Tensor, lattice: Lattice, quarks: FermionOptions, sources: Sources
) -> Tensor:
    """Return C(t) of a point source as an average over sources, (batch, T) float64.

    Args:
        links: (batch, D, V, N, N).
        lattice: The lattice.
        quarks: Quarks of the meson.
        sources: Sources of each configuration, or a batch of one for all.
    """
    operator = DiracOperator(links, lattice.extents, quarks.kappa, quarks.two_kappa_mu)
    eta = sources.spinors.to(links).expand(len(links), -1, -1, -1, -1)
    psi = DiracSolver(operator).solve(eta)
    density = torch.view_as_real(psi).double().square().sum((3, 4, 5))  # (batch, n_rhs, V)
    n_times = lattice.extents[0]
    slices = density.reshape(*density.shape[:2], n_times, -1).sum(3)
    places = sources.times.to(links.device)[..., None] + torch.arange(n_times, device=links.device)
    from_source = slices.gather(2, (places % n_times).expand_as(slices))
    return from_source.sum(1) * sources.weight
