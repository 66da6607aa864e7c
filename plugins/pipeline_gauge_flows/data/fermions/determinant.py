"""Exact determinants of Wilson's Dirac operator on small lattices, and their derivatives.

On odd sites only, log |det M| = (N S V / 4) log(1 + mu~^2) + log |det Mhat|, where Mhat is a
matrix of N S V / 2 rows: 48 for SU(3) on 4x4, 1536 on 4^4. The derivative by links equals that of
Re tr(log Mhat): with chi_k the columns of the adjoint of the inverse and e_k unit vectors,

    d log |det Mhat| = Re sum_k chi_k^dagger dMhat e_k.
"""

import math
from typing import Any

import torch
from torch import Tensor

from pipeline_gauge_flows.data.lattice import Lattice
from pipeline_kernels.dirac import DiracOperator


def compute_log_determinant(
    links: Tensor, lattice: Lattice, kappa: float, two_kappa_mu: float = 0.0
) -> Tensor:
    """Return log |det M| of one flavour, (batch,) float64, differentiable once by the links.

    A degenerate doublet, twisted or not, has twice this value: its determinant is |det M|^2.

    Args:
        links: (batch, D, V, N, N) complex128, on a lattice with even extents and D = 2 or 4.
        lattice: The lattice; its boundary is antiperiodic in time.
        kappa: Hopping parameter.
        two_kappa_mu: Twisted mass, 2 kappa mu.
    """
    spins = lattice.dimension
    diagonal = lattice.n_colours * spins * lattice.volume / 4 * math.log1p(two_kappa_mu**2)
    value: Tensor = _LogDeterminant.apply(  # type: ignore[no-untyped-call]
        links, lattice.extents, kappa, two_kappa_mu
    )
    return value + diagonal


def build_matrix(operator: DiracOperator) -> Tensor:
    """Return Mhat as dense matrices, (batch, n, n) with n = N S V / 2."""
    _, _, volume, n_colours, _ = operator.links.shape
    units = _make_units(operator, volume // 2, n_colours)
    return operator.apply_even_odd(units).flatten(2).mT


def _make_units(operator: DiracOperator, n_sites: int, n_colours: int) -> Tensor:
    """Return all unit vectors as right-hand sides, (batch, n, V / 2, S, N)."""
    spins = len(operator.extents)
    n = n_sites * spins * n_colours
    one = torch.eye(n, dtype=operator.links.dtype, device=operator.links.device)
    units = one.reshape(1, n, n_sites, spins, n_colours)
    return units.expand(len(operator.links), *units.shape[1:])


class _LogDeterminant(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, links: Tensor, extents: tuple[int, ...], kappa: float, two_kappa_mu: float
    ) -> Tensor:
        ctx.operator = DiracOperator(links.detach(), extents, kappa, two_kappa_mu)
        factors: Tensor
        factors, ctx.pivots = torch.linalg.lu_factor(build_matrix(ctx.operator))
        ctx.save_for_backward(factors)
        return factors.diagonal(dim1=-2, dim2=-1).abs().double().log().sum(-1)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, by_value: Tensor) -> tuple[Tensor | None, ...]:
        (factors,) = ctx.saved_tensors
        operator = ctx.operator
        _, _, volume, n_colours, _ = operator.links.shape
        units = _make_units(operator, volume // 2, n_colours)
        one = torch.eye(factors.shape[-1], dtype=factors.dtype, device=factors.device)
        inverse = torch.linalg.lu_solve(factors, ctx.pivots, one.expand_as(factors))
        # row k of the inverse is chi_k^dagger
        chi = inverse.conj().resolve_conj().reshape(units.shape)
        by_links = operator.differentiate_even_odd(chi, units)
        return by_links * by_value[:, None, None, None, None], None, None, None
