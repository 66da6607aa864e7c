"""Observables.

Oracles: constant abelian fields, whose loops are known in closed form; centre transformations.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch.testing import assert_close

from pipeline_gauge_flows.data.lattice import Lattice, draw_hot, make_cold
from pipeline_gauge_flows.data.observables import (
    average_plaquettes,
    plaquette,
    polyakov_loop,
    wilson_loop,
)
from pipeline_gauge_flows.evaluation.observables import Observables
from pipeline_gauge_flows.evaluation.options import ObservableOptions
from pipeline_kernels.su3 import draw_haar
from plugins.gauge_flows.small import make_generator, transform_gauge

LATTICES = [Lattice((4, 3), 3), Lattice((2, 3, 5), 2), Lattice((3, 2, 4, 2), 3)]


def make_diagonal(angles: torch.Tensor, n_colours: int = 3) -> torch.Tensor:
    """Return one configuration exp(i angles T), T = diag(1, -1, 0), of angles (D, V)."""
    t = torch.tensor([1.0, -1.0, 0.0][:n_colours], dtype=torch.float64)
    return torch.diag_embed(torch.exp(1j * angles[..., None] * t))[None]


def make_flux(lattice: Lattice, quanta: dict[tuple[int, int], int]) -> torch.Tensor:
    """Return a configuration with a constant field of so many flux quanta in some planes."""
    x = lattice.coordinates.double()
    angles = torch.zeros(lattice.dimension, lattice.volume, dtype=torch.float64)
    for (mu, nu), count in quanta.items():
        field = 2 * math.pi * count / (lattice.extents[mu] * lattice.extents[nu])
        angles[nu] += field * x[:, mu]
        last = x[:, mu] == lattice.extents[mu] - 1
        angles[mu] -= torch.where(last, field * lattice.extents[mu] * x[:, nu], 0.0)
    return make_diagonal(angles, lattice.n_colours)


@pytest.mark.parametrize("lattice", LATTICES)
def test_observables_do_not_depend_on_the_gauge(lattice):
    links = draw_hot(lattice, 2, make_generator())
    gauge = draw_haar(lattice.volume, lattice.n_colours, make_generator(1))
    turned = transform_gauge(links, gauge, lattice)
    for observable in (
        average_plaquettes,
        polyakov_loop,
        lambda links, lattice: polyakov_loop(links, lattice, 1),
        lambda links, lattice: wilson_loop(links, lattice, (2, 3), 1, 0),
    ):
        assert_close(observable(turned, lattice), observable(links, lattice))


def test_wilson_loop_encloses_the_flux_of_its_area():
    lattice = Lattice((5, 6, 4), 3)
    links = make_flux(lattice, {(1, 2): 1})
    for sides in ((1, 1), (2, 1), (3, 2), (6, 4)):
        expected = (1 + 2 * math.cos(2 * math.pi / 24 * math.prod(sides))) / 3
        assert wilson_loop(links, lattice, sides, 1, 2).item() == pytest.approx(expected)
        assert wilson_loop(links, lattice, sides, 0, 2).item() == pytest.approx(1.0)


@pytest.mark.parametrize("lattice", LATTICES)
def test_centre_transformation_turns_the_polyakov_loop_alone(lattice):
    links = draw_hot(lattice, 2, make_generator())
    centre = complex(torch.exp(torch.tensor(2j * math.pi / lattice.n_colours)))
    for direction in range(lattice.dimension):
        slab = lattice.coordinates[:, direction] == 1
        turned = links.clone()
        turned[:, direction, slab] *= centre
        before, after = (polyakov_loop(one, lattice, direction) for one in (links, turned))
        assert_close(after, centre * before, rtol=1e-6, atol=1e-6)
        assert_close(plaquette(turned, lattice), plaquette(links, lattice), rtol=1e-6, atol=1e-6)
    assert_close(
        polyakov_loop(make_cold(lattice), lattice).real, torch.ones(1, dtype=torch.float64)
    )


def test_wilson_loops_are_averaged_over_planes_and_orientations():
    lattice = Lattice((3, 4, 2), 2)
    links = draw_hot(lattice, 2, torch.Generator().manual_seed(0))
    values = Observables(ObservableOptions(wilson_loops=[(1, 2), (1, 1)]), lattice)(links)
    loops = [
        wilson_loop(links, lattice, sides, mu, nu)
        for mu, nu in ((0, 1), (0, 2), (1, 2))
        for sides in ((1, 2), (2, 1))
    ]
    torch.testing.assert_close(values["wilson_1x2"], sum(loops) / 6)
    torch.testing.assert_close(values["wilson_1x1"], values["plaquette"])
    planes = values["planes"]
    torch.testing.assert_close(values["plaquette_time"], (planes[:, 0] + planes[:, 1]) / 2)
    torch.testing.assert_close(values["plaquette_space"], planes[:, 2])
