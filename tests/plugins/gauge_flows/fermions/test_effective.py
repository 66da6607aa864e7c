"""Actions with quarks as functions of the links, in flows, too.

Oracles: differences along the group; averages over pseudofermions, which know no determinant of
their own; heat bath without quarks.
"""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from pipeline_gauge_flows.actions import GaugeAction
from pipeline_gauge_flows.datasets import ActionOptions, FermionOptions
from pipeline_gauge_flows.fermions.effective import EffectiveAction, make_action
from pipeline_gauge_flows.lattice import Lattice, draw_hot
from pipeline_gauge_flows.loops import project_to_algebra

QUARKS = FermionOptions(kappa=0.2, two_kappa_mu=0.1)
THEORY = ActionOptions(name="symanzik", beta=2.0, fermions=QUARKS)


def draw_links(lattice: Lattice) -> torch.Tensor:
    return draw_hot(lattice, 2, torch.Generator().manual_seed(0))


@pytest.mark.parametrize("lattice", [Lattice((4, 6), 3), Lattice((2, 4, 2, 2), 2)])
def test_force_is_the_slope_of_the_action(lattice):
    links, action = draw_links(lattice), make_action(THEORY, lattice)
    gauss = torch.randn(links.shape, generator=torch.Generator().manual_seed(1), dtype=links.dtype)
    X, h = project_to_algebra(gauss), 1e-3

    def move(t: float) -> torch.Tensor:
        return action(torch.linalg.matrix_exp(t * X) @ links)

    differences = [move(k * h) - move(-k * h) for k in (1, 2, 3)]
    slope = sum(w * d for w, d in zip((45, -9, 1), differences, strict=True)) / (60 * h)
    expected = 2 * (X @ action.force(links)).diagonal(dim1=-2, dim2=-1).sum((1, 2, 3)).real
    assert_close(slope, expected, rtol=1e-8, atol=1e-8)
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
