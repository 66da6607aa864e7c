"""Lattices. Oracles: index arithmetic on coordinates; moments of the Haar measure."""

from itertools import product

import pytest
import torch
from torch.testing import assert_close

from pipeline_gauge_flows.data.lattice import Lattice, draw_hot, make_cold, make_neighbours
from plugins.gauge_flows.small import multiply_plaquettes

LATTICES = [Lattice((4, 3), 3), Lattice((2, 3, 5), 2), Lattice((3, 2, 4, 2), 3)]


@pytest.mark.parametrize("lattice", LATTICES)
def test_sites_are_numbered_row_by_row(lattice):
    sites = list(product(*map(range, lattice.extents)))
    assert lattice.coordinates.tolist() == [list(site) for site in sites]
    assert lattice.volume == len(sites)
    for mu, extent in enumerate(lattice.extents):
        for number, site in enumerate(sites):
            for table, step in ((lattice.forward, 1), (lattice.backward, -1)):
                moved = list(site)
                moved[mu] = (site[mu] + step) % extent
                assert table[mu, number] == sites.index(tuple(moved))


def test_tables_made_in_inference_mode_serve_a_training():
    lattice = Lattice((2, 5), 2)
    with torch.inference_mode():
        multiply_plaquettes(make_cold(lattice), lattice)
        tables = [lattice.coordinates, *make_neighbours(lattice, torch.device("cpu"))]
    assert not any(table.is_inference() for table in tables)
    links = make_cold(lattice).requires_grad_()
    multiply_plaquettes(links, lattice).real.sum().backward()
    assert links.grad is not None


def test_cold_links_are_one():
    lattice = Lattice((2, 3), 2)
    links = make_cold(lattice, 3)
    assert links.shape == (3, *lattice.shape)
    assert draw_hot(lattice, dtype=torch.complex64).dtype == torch.complex64
    assert_close(links @ links, links)
    assert_close(multiply_plaquettes(links, lattice)[0, 0, 0], torch.eye(2, dtype=links.dtype))


@pytest.mark.parametrize(
    ("extents", "n_colours", "message"),
    [
        ((4,), 3, "give 2, 3 or 4"),
        ((4, 4, 4, 4, 4), 3, "give 2, 3 or 4"),
        ((4, 1), 3, "at least 2 sites"),
        ((4, 4), 4, r"only SU\(2\) and SU\(3\)"),
    ],
)
def test_impossible_lattices_are_refused(extents, n_colours, message):
    with pytest.raises(ValueError, match=message):
        Lattice(extents, n_colours)
