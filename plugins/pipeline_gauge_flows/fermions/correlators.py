"""Correlators of mesons from propagators.

| symbol                              | here                      |
|-------------------------------------|---------------------------|
| C(t) = sum_x |S(x + t, source)|^2   | `compute_pion_correlator` |

with S = M^-1 and a sum over spins and colours of both ends. It is that of the charged pseudoscalar:
by gamma5-hermiticity the propagator of the other flavour, with -mu, is the adjoint of S.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pipeline_gauge_flows.datasets import FermionOptions
from pipeline_gauge_flows.fermions.solver import DiracSolver
from pipeline_gauge_flows.lattice import Lattice
from pipeline_kernels.dirac import DiracOperator


def compute_pion_correlator(
    links: Tensor, lattice: Lattice, quarks: FermionOptions, source: int = 0
) -> Tensor:
    """Return C(t) of a point source, summed over space, (batch, T) float64.

    Args:
        links: (batch, D, V, N, N).
        lattice: Their lattice.
        quarks: Of which the meson is made.
        source: Site of the source; t is counted from there.
    """
    extents, d, n = lattice.extents, lattice.dimension, lattice.n_colours
    operator = DiracOperator(links, extents, quarks.kappa, quarks.two_kappa_mu)
    eta = torch.zeros(d * n, lattice.volume, d * n, dtype=links.dtype, device=links.device)
    eta[:, source] = torch.eye(d * n, dtype=links.dtype, device=links.device)
    eta = eta.reshape(1, d * n, lattice.volume, d, n).expand(len(links), -1, -1, -1, -1)
    psi = DiracSolver(operator).solve(eta).spinors
    density = torch.view_as_real(psi).square().sum((1, 3, 4, 5))  # (batch, V)
    slices = density.reshape(len(links), extents[0], -1).sum(2)
    return slices.roll(-int(lattice.coordinates[source, 0]), 1)
