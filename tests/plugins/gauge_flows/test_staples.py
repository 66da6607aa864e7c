"""Oracles: gauge transformations, and the corrected Eqs. 6 and 7 link by link."""

from __future__ import annotations

import pytest
import torch

from pipeline_gauge_flows.frozen_paths import frozen_paths
from pipeline_gauge_flows.lattice import Lattice, gauge_transform, neighbours
from pipeline_gauge_flows.masks import Update, active_links, active_mask
from pipeline_gauge_flows.staples import StapleNetwork, frozen_links
from pipeline_kernels.su3 import staple_layer
from plugins.gauge_flows.small import some_gauge, some_links

CPU = torch.device("cpu")
LATTICES = [Lattice((4, 4), 3), Lattice((4, 4), 2), Lattice((2, 4, 2), 3), Lattice((2,) * 4, 3)]


def staples_of(net, links, update, lattice):
    paths = frozen_paths(update, lattice, CPU).products(links.flatten(1, 2))
    return net(links, paths, update, lattice)


def network(dimension, **options):
    torch.manual_seed(0)
    defaults = {"width": 3, "n_layers": 3, "plaquette": 1, "gain": 0.5}
    return StapleNetwork(dimension, **defaults | options).double()


@pytest.mark.parametrize("lattice", LATTICES, ids=str)
def test_active_staples_transform_like_links(lattice):
    update, links, gauge = Update("direction", 0, 3), some_links(lattice), some_gauge(lattice)
    net = network(lattice.dimension)
    active = active_links(update, lattice, CPU)
    full = (
        torch.zeros_like(links)
        .flatten(1, 2)
        .index_copy(1, active, staples_of(net, links, update, lattice))
    )
    expected = gauge_transform(full.view_as(links), gauge, lattice).flatten(1, 2)[:, active]
    found = staples_of(net, gauge_transform(links, gauge, lattice), update, lattice)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("pattern", ["direction", "location"])
def test_active_staples_know_nothing_of_active_links(pattern):
    lattice, update = Lattice((4, 4), 3), Update(pattern, 0, 1)
    links, other = some_links(lattice), some_links(lattice, seed=7)
    mask = active_mask(update, lattice, CPU)[:, :, None, None]
    net = network(2)
    assert torch.equal(
        staples_of(net, links, update, lattice),
        staples_of(net, torch.where(mask, other, links), update, lattice),
    )
    assert not torch.equal(
        staples_of(net, links, update, lattice), staples_of(net, other, update, lattice)
    )


@pytest.mark.parametrize("n_layers", [1, 2, 3])
@pytest.mark.parametrize("plaquette", range(4))
def test_without_noise_the_start_is_a_plaquette(n_layers, plaquette):
    lattice, update = Lattice((4, 4, 2), 3), Update("direction", 0, 2)
    links = some_links(lattice)
    net = network(3, n_layers=n_layers, plaquette=plaquette, gain=0.0)
    expected = frozen_paths(update, lattice, CPU).products(links.flatten(1, 2))[:, :, plaquette]
    torch.testing.assert_close(staples_of(net, links, update, lattice), expected)


def test_two_layers_by_hand():
    """R_mu,nu = S_nu(x) S_mu(x+nu) S_nu(x+mu)^dag, L from x - nu; real coefficients for all mu."""
    lattice, update = Lattice((2, 4), 2), Update("direction", 0, 0)
    net, links = network(2, width=2, n_layers=2), some_links(lattice, 1)
    staples = [frozen_links(links, update, lattice)[0]]
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
    expected = staples[0].flatten(0, 1)[active_links(update, lattice, CPU)]
    torch.testing.assert_close(staples_of(net, links, update, lattice)[0], expected)


@pytest.mark.parametrize("pattern", ["direction", "location", "m4"])
def test_one_layer_sees_what_the_staple_layer_sees(pattern):
    lattice, update = Lattice((4, 4, 4), 3), Update(pattern, 1, 2)
    net, links = network(3, n_layers=1), some_links(lattice)
    tables = neighbours(lattice, CPU)
    frozen = frozen_links(links, update, lattice).unsqueeze(1)
    whole = staple_layer(frozen, net.coefficients[0], *tables)[:, 0].flatten(1, 2)
    expected = whole[:, active_links(update, lattice, CPU)]
    torch.testing.assert_close(staples_of(net, links, update, lattice), expected)
