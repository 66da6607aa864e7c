"""Determinants of Dirac's operator.

Oracles: eigenvalues of free quarks, the determinant of the operator on all sites, differences along
the group, gauge invariance, that it is real without a twisted mass.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch.testing import assert_close

from pipeline_gauge_flows.fermions.determinant import build_matrix, compute_log_determinant
from pipeline_gauge_flows.lattice import Lattice, draw_hot, make_cold
from pipeline_gauge_flows.loops import project_to_algebra
from pipeline_kernels.dirac import DiracOperator
from plugins.gauge_flows.small import make_generator

LATTICES = [Lattice((4, 4), 3), Lattice((2, 6), 2), Lattice((2, 2, 4, 2), 2)]


@pytest.mark.parametrize("lattice", LATTICES)
@pytest.mark.parametrize("two_kappa_mu", [0.0, 0.3])
def test_free_quarks(lattice, two_kappa_mu):
    """det M = prod_p (A^2 + 4 kappa^2 sum sin^2 p + mu~^2)^(N S / 2)."""
    kappa = 0.11
    momenta = [
        2 * math.pi * (torch.arange(n).double() + (0.5 if mu == 0 else 0)) / n
        for mu, n in enumerate(lattice.extents)
    ]
    p = torch.cartesian_prod(*momenta)
    square = (1 - 2 * kappa * p.cos().sum(1)) ** 2 + 4 * kappa**2 * p.sin().square().sum(1)
    power = lattice.n_colours * lattice.dimension / 2
    expected = power * (square + two_kappa_mu**2).log().sum()
    value = compute_log_determinant(make_cold(lattice), lattice, kappa, two_kappa_mu)
    assert_close(value, expected[None], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("lattice", LATTICES)
def test_all_sites_give_the_same(lattice):
    links = draw_hot(lattice, 2, make_generator(0))
    operator = DiracOperator(links, lattice.extents, 0.14, 0.2)
    n = lattice.volume * lattice.dimension * lattice.n_colours
    units = torch.eye(n, dtype=links.dtype)
    units = units.reshape(1, n, lattice.volume, lattice.dimension, lattice.n_colours)
    full = operator.apply(units.expand(2, *units.shape[1:])).flatten(2).mT
    expected = torch.linalg.slogdet(full)[1]
    value = compute_log_determinant(links, lattice, 0.14, 0.2)
    assert_close(value, expected, rtol=1e-12, atol=1e-12)
    assert_close(value, compute_log_determinant(links, lattice, 0.14, -0.2))
    real = build_matrix(DiracOperator(links, lattice.extents, 0.14))
    assert torch.linalg.slogdet(real)[0].imag.abs().max() < 1e-12


@pytest.mark.parametrize("lattice", LATTICES)
def test_derivatives_are_those_of_differences(lattice):
    links = draw_hot(lattice, 2, make_generator(0)).requires_grad_()
    generator = make_generator(1)
    gauss = torch.randn(links.shape, generator=generator, dtype=links.dtype)
    X = project_to_algebra(gauss)
    value = compute_log_determinant(links, lattice, 0.14, 0.2)
    (G,) = torch.autograd.grad(value @ torch.tensor([1.0, -2.0]).double(), links)

    def move(t: float) -> torch.Tensor:
        moved = torch.linalg.matrix_exp(t * X) @ links.detach()
        return compute_log_determinant(moved, lattice, 0.14, 0.2)

    h = 2e-3
    slope = (8 * (move(h) - move(-h)) - (move(2 * h) - move(-2 * h))) / (12 * h)
    expected = (G.conj() * (X @ links)).sum((1, 2, 3, 4)).real
    assert_close(expected, slope * torch.tensor([1.0, -2.0]), rtol=1e-8, atol=1e-8)
