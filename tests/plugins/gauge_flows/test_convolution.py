"""Oracle: Wilson loops multiplied link by link. Symmetry and frozen links: `test_layers`."""

from __future__ import annotations

import pytest
import torch

from pipeline_gauge_flows.data.lattice import Lattice
from pipeline_gauge_flows.data.loops import multiply_path
from pipeline_gauge_flows.graph.masks import Update, find_active_links
from pipeline_gauge_flows.model.convolution import Convolution, carry_loops
from pipeline_gauge_flows.options import ConvolutionOptions
from plugins.gauge_flows.small import draw_gauge, draw_links

CPU = torch.device("cpu")
LATTICES = [Lattice((4, 4), 2), Lattice((4, 4, 4), 3), Lattice((2, 4, 2, 2), 3)]


def make_convolution(lattice, **options):
    torch.manual_seed(0)
    made = Convolution(ConvolutionOptions(**options), lattice.dimension, lattice.n_colours)
    return made.double().requires_grad_(False)


@pytest.mark.parametrize("lattice", LATTICES)
def test_loops_are_carried_by_links(lattice):
    """A loop at x + mu becomes U W U^dag at x: link by link."""
    links, n = draw_links(lattice), 2
    loops = torch.stack([draw_gauge(lattice, seed=s) for s in (3, 4)], dim=2)
    carried = carry_loops(loops, links, lattice).unflatten(2, (2, lattice.dimension, n))
    for mu in range(lattice.dimension):
        for k in range(n):
            there = loops[:, lattice.forward[mu], k]
            expected = links[:, mu] @ there @ links[:, mu].mH
            torch.testing.assert_close(carried[:, :, 0, mu, k], expected)
            back, there = links[:, mu, lattice.backward[mu]], loops[:, lattice.backward[mu], k]
            torch.testing.assert_close(carried[:, :, 1, mu, k], back.mH @ there @ back)


def test_two_plaquettes_make_a_rectangle():
    """That of y carried along, times that of y - 1: a loop 1 x 2 beside the end y of a link."""
    lattice, update = Lattice((4, 4), 3), Update("m4", 0, 1)
    links, convolution = draw_links(lattice), make_convolution(lattice, n_layers=1, width=1)
    layer = convolution.layers[0]
    # Loops of direction 0 are U_0 R^dag, plaquettes, and those of direction 1 their adjoints.
    convolution.coefficients.copy_(torch.tensor([[1.0, 0, 0], [0, 1.0, 0]]))
    layer.coefficients.zero_()
    layer.constants.zero_()
    layer.coefficients[0, 8] = 1  # from y - 1, of direction 0
    layer.coefficients[1, 1] = 1  # from y, of direction 1
    active = find_active_links(update, lattice, CPU)
    ends = lattice.forward.flatten()[active]
    rectangle = multiply_path(links, lattice, [-2, 0, 1, 1, -1, -2], ends)
    expected = torch.view_as_real(rectangle.diagonal(dim1=-2, dim2=-1).mean(-1))
    features = convolution(links, update, lattice)
    torch.testing.assert_close(features[:, :, 2:], expected / 2**0.5)  # bounded, W is unitary
    assert (features[:, :, :2] == 0).all()  # the plaquettes there have an active link


@pytest.mark.parametrize("n_layers", [1, 2, 3])
def test_each_layer_sees_one_site_further(n_layers):
    """Untraced loops at a site have links of its neighbours, and those come from n sites aside."""
    lattice, update = Lattice((2, 4, 12), 3), Update("direction", 0, 0)
    links, convolution = draw_links(lattice, 1), make_convolution(lattice, n_layers=n_layers)
    features = convolution(links, update, lattice)[:, 0]  # of the link at (0, 0, 0)
    for away in range(1, 6):
        other = links.clone()
        other[:, 1, away] = draw_links(lattice, 1, seed=9)[:, 1, away]  # at (0, 0, away)
        is_same = torch.equal(convolution(other, update, lattice)[:, 0], features)
        assert is_same == (away > n_layers + 1)
