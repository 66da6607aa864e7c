"""Determinants of Dirac's operator, and actions with them as functions of the links.

Oracles: eigenvalues of free quarks, differences along the group, the gauge action where quarks are
heavy. That all sites have the determinant of the odd ones is in the tests of the kernel.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch.testing import assert_close

from pipeline_gauge_flows.data.actions import GaugeAction
from pipeline_gauge_flows.data.datasets import ActionOptions, FermionOptions
from pipeline_gauge_flows.data.fermions.determinant import compute_log_determinant
from pipeline_gauge_flows.data.fermions.effective import EffectiveAction, make_action
from pipeline_gauge_flows.data.lattice import Lattice, make_cold
from pipeline_gauge_flows.data.loops import project_to_algebra
from plugins.gauge_flows.small import check_force, draw_direction, draw_links, measure_slope

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
def test_derivatives_are_those_of_differences(lattice):
    links, sizes = draw_links(lattice).requires_grad_(), torch.tensor([1.0, -2.0]).double()

    def compute(links):
        return compute_log_determinant(links, lattice, 0.14, 0.2)

    (G,) = torch.autograd.grad(compute(links) @ sizes, links)
    links, X = links.detach(), draw_direction(links)
    expected = (G.conj() * (X @ links)).sum((1, 2, 3, 4)).real
    assert_close(expected, measure_slope(compute, links, X) * sizes, rtol=1e-8, atol=1e-8)


QUARKS = FermionOptions(kappa=0.2, two_kappa_mu=0.1)
THEORY = ActionOptions(name="symanzik", beta=2.0, fermions=QUARKS)


@pytest.mark.parametrize("lattice", [Lattice((4, 6), 3), Lattice((2, 4, 2, 2), 2)])
def test_force_is_the_slope_of_the_action_and_its_derivative_by_autograd(lattice):
    links, action = draw_links(lattice), make_action(THEORY, lattice)
    check_force(action, links)
    leaf = links.requires_grad_()
    (gradient,) = torch.autograd.grad(action(leaf).sum(), leaf)
    assert_close(project_to_algebra(leaf @ gradient.mH) / 2, action.force(leaf))


def test_an_action_without_quarks_is_that_of_the_gauge_field():
    lattice = Lattice((4, 4), 3)
    pure = ActionOptions(beta=2.0)
    assert isinstance(make_action(pure, lattice), GaugeAction)
    whole = make_action(pure.model_copy(update={"fermions": QUARKS}), lattice)
    assert isinstance(whole, EffectiveAction)
    links = draw_links(lattice)
    assert_close(whole.gauge(links), make_action(pure, lattice)(links))
    heavy = pure.model_copy(update={"fermions": FermionOptions(kappa=1e-6)})
    assert_close(make_action(heavy, lattice)(links), whole.gauge(links), rtol=0, atol=1e-9)
    with pytest.raises(ValueError, match=r"extents \[3, 4\]; make them even"):
        make_action(THEORY, Lattice((3, 4), 3))
