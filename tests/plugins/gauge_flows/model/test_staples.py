"""Oracle: the corrected Eqs. 6 and 7 link by link. Symmetry and frozen links: `test_layers`."""

import pytest
import torch

from pipeline_gauge_flows.data.lattice import Lattice
from pipeline_gauge_flows.graph.context import make_context
from pipeline_gauge_flows.graph.masks import Update
from pipeline_gauge_flows.model.staples import StapleNetwork
from plugins.gauge_flows.small import draw_links


def compute_staples(net, links, update, lattice):
    """Return the active staples."""
    context = make_context(update, lattice)
    return net(links, context.paths.multiply_links(links.flatten(1, 2)), context)


def make_network(dimension, **options):
    torch.manual_seed(0)
    defaults = {"width": 3, "n_layers": 3, "plaquette": 1, "gain": 0.5}
    return StapleNetwork(dimension, **defaults | options).double()


@pytest.mark.parametrize("n_layers", [1, 2, 3])
@pytest.mark.parametrize("plaquette", range(4))
def test_without_noise_the_start_is_a_plaquette(n_layers, plaquette):
    lattice, update = Lattice((4, 4, 2), 3), Update("direction", 0, 2)
    links = draw_links(lattice)
    net = make_network(3, n_layers=n_layers, plaquette=plaquette, gain=0.0)
    paths = make_context(update, lattice).paths.multiply_links(links.flatten(1, 2))
    torch.testing.assert_close(compute_staples(net, links, update, lattice), paths[:, :, plaquette])


def test_two_layers_by_hand():
    """R_mu,nu = S_nu(x) S_mu(x+nu) S_nu(x+mu)^dag, L from x - nu; real coefficients for all mu."""
    lattice, update = Lattice((2, 4), 2), Update("direction", 0, 0)
    net, links = make_network(2, width=2, n_layers=2), draw_links(lattice, 1)
    context = make_context(update, lattice)
    staples = [links.masked_fill(context.mask[:, :, None, None], 0)[0]]
    x = lattice.coordinates
    site = {tuple(c): i for i, c in enumerate(x.tolist())}

    def moved(i, mu, by):
        c = x[i].tolist()
        c[mu] = (c[mu] + by) % lattice.extents[mu]
        return site[tuple(c)]

    for coefficients in net.coefficients:
        augmented = [[], [], []]
        for s in staples:
            right, left = torch.zeros_like(s), torch.zeros_like(s)
            for mu in (0, 1):
                nu = 1 - mu
                for i in range(lattice.volume):
                    right[mu, i] = s[nu, i] @ s[mu, moved(i, nu, 1)] @ s[nu, moved(i, mu, 1)].mH
                    j = moved(i, nu, -1)
                    left[mu, i] = s[nu, j].mH @ s[mu, j] @ s[nu, moved(j, mu, 1)]
            for block, part in zip(augmented, (s, right, left), strict=True):
                block.append(part)
        parts = [part for block in augmented for part in block]
        rows = coefficients.detach()
        staples = [sum(c * p for c, p in zip(row, parts, strict=True)) for row in rows]
    expected = staples[0].flatten(0, 1)[context.active]
    torch.testing.assert_close(compute_staples(net, links, update, lattice)[0], expected)
