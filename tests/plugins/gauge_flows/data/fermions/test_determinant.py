"""Determinants of Dirac's operator, and actions with them as functions of the links.

Oracles: eigenvalues of free quarks, differences along the group, the gauge action where quarks are
heavy. That all sites have the determinant of the odd ones is in the tests of the kernel.
"""

import math

import pytest
import torch
from torch.testing import assert_close

from pipeline_gauge_flows.data.actions import GaugeAction
from pipeline_gauge_flows.data.datasets import ActionOptions, FermionOptions
from pipeline_gauge_flows.data.fermions.determinant import compute_log_determinant
from pipeline_gauge_flows.data.fermions.effective import EffectiveAction
from pipeline_gauge_flows.data.lattice import Lattice, make_cold
from plugins.gauge_flows.small import draw_direction, draw_links, measure_slope

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


def test_quarks_add_twice_the_logarithm_of_their_determinant():
    lattice, pure = Lattice((4, 4), 3), ActionOptions(beta=2.0)
    links, gauge = draw_links(lattice), EffectiveAction(pure, lattice)
    assert_close(gauge(links), GaugeAction(pure, lattice)(links), rtol=0, atol=0)
    whole = EffectiveAction(pure.model_copy(update={"fermions": QUARKS}), lattice)
    determinant = compute_log_determinant(links, lattice, QUARKS.kappa, QUARKS.two_kappa_mu)
    assert_close(whole(links), gauge(links) - 2 * determinant)
    assert_close(whole.gauge(links), gauge(links))
    heavy = pure.model_copy(update={"fermions": FermionOptions(kappa=1e-6)})
    heavy_action = EffectiveAction(heavy, lattice)
    assert_close(heavy_action(links), gauge(links), rtol=0, atol=1e-9)
    with pytest.raises(ValueError, match=r"extents \[3, 4\]; make them even"):
        EffectiveAction(THEORY, Lattice((3, 4), 3))
