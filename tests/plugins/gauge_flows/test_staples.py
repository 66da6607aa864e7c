"""Oracle: the corrected Eqs. 6 and 7 link by link. Symmetry and frozen links: `test_layers`."""

from __future__ import annotations

import pytest
import torch

from pipeline_gauge_flows.data.lattice import Lattice
from pipeline_gauge_flows.graph.frozen_paths import find_frozen_paths
from pipeline_gauge_flows.graph.masks import Update, find_active_links
from pipeline_gauge_flows.model.staples import StapleNetwork, clear_active
from plugins.gauge_flows.small import draw_links

CPU = torch.device("cpu")


def compute_staples(net, links, update, lattice):
    """Return the active staples of the first loop."""
    return compute_all_staples(net, links, update, lattice)[:, :, 0]


def compute_all_staples(net, links, update, lattice):
    paths = find_frozen_paths(update, lattice, CPU).multiply_links(links.flatten(1, 2))
    return net(links, paths, update, lattice)


def make_network(dimension, **options):
    torch.manual_seed(0)
    defaults = {"width": 3, "n_layers": 3, "plaquettes": [1], "gain": 0.5}
    return StapleNetwork(dimension, **defaults | options).double()


@pytest.mark.parametrize("n_layers", [1, 2, 3])
@pytest.mark.parametrize("plaquette", range(4))
def test_without_noise_the_start_is_a_plaquette(n_layers, plaquette):
    lattice, update = Lattice((4, 4, 2), 3), Update("direction", 0, 2)
    links = draw_links(lattice)
    starts = [plaquette, (plaquette + 1) % 4]
    net = make_network(3, n_layers=n_layers, plaquettes=starts, gain=0.0)
    expected = find_frozen_paths(update, lattice, CPU).multiply_links(links.flatten(1, 2))[
        :, :, starts
    ]
    torch.testing.assert_close(compute_all_staples(net, links, update, lattice), expected)


@pytest.mark.parametrize("n_layers", [1, 3])
def test_each_loop_is_that_of_a_network_with_its_coefficients_alone(n_layers):
    lattice, update = Lattice((4, 2), 3), Update("direction", 0, 1)
    links, both = draw_links(lattice), make_network(2, n_layers=n_layers, plaquettes=[0, 1])
    for loop in range(2):
        alone = make_network(2, n_layers=n_layers)
        rows = [c.detach() for c in both.coefficients]
        rows[-1] = rows[-1][loop : loop + 1]
        alone.load_state_dict({f"coefficients.{n}": c for n, c in enumerate(rows)})
        torch.testing.assert_close(
            compute_all_staples(both, links, update, lattice)[:, :, loop],
            compute_staples(alone, links, update, lattice),
        )


def test_two_layers_by_hand():
    """R_mu,nu = S_nu(x) S_mu(x+nu) S_nu(x+mu)^dag, L from x - nu; real coefficients for all mu."""
    lattice, update = Lattice((2, 4), 2), Update("direction", 0, 0)
    net, links = make_network(2, width=2, n_layers=2), draw_links(lattice, 1)
    staples = [clear_active(links, update, lattice)[0]]
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
    expected = staples[0].flatten(0, 1)[find_active_links(update, lattice, CPU)]
    torch.testing.assert_close(compute_staples(net, links, update, lattice)[0], expected)
