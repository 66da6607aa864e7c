"""Observables and the gradient flow.

Oracles: constant and plane-wave abelian fields, whose charge, energy and flow are known in closed
form; centre transformations; the order of Luescher's Runge-Kutta method.
"""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from torch.testing import assert_close

from pipeline_gauge_flows.data.gradient_flow import integrate_gradient_flow
from pipeline_gauge_flows.data.lattice import Lattice, draw_hot, make_cold
from pipeline_gauge_flows.data.observables import (
    average_plaquettes,
    energy_density,
    plaquette,
    polyakov_loop,
    topological_charge,
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
        energy_density,
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


@pytest.mark.parametrize("n_colours", [2, 3])
@pytest.mark.parametrize("quanta", [(1, 1), (1, -1), (2, 1), (0, 1)])
def test_charge_of_a_constant_field(n_colours, quanta):
    """Q = 2 m n in the continuum; the clover gives sin f for a field f in every plaquette."""
    lattice = Lattice((4, 6, 5, 3), n_colours)
    links = make_flux(lattice, {(0, 1): quanta[0], (2, 3): quanta[1]})
    sines = [math.sin(2 * math.pi * m / area) for m, area in zip(quanta, (24, 15), strict=True)]
    expected = 2 * lattice.volume / (4 * math.pi**2) * math.prod(sines)
    gauge = draw_haar(lattice.volume, n_colours, make_generator())
    for one in (links, transform_gauge(links, gauge, lattice)):
        assert topological_charge(one, lattice).item() == pytest.approx(expected, abs=1e-12)
        energy = energy_density(one, lattice).item()
        assert energy == pytest.approx(2 * sum(s**2 for s in sines), abs=1e-12)
    if 0 not in quanta and max(quanta) == 1:
        assert abs(expected / (2 * math.prod(quanta)) - 1) < 0.05


@pytest.mark.parametrize("planes", [((0, 2), (1, 3)), ((0, 3), (1, 2))])
def test_sign_of_the_charge_in_other_planes(planes):
    """epsilon_0213 = -1, epsilon_0312 = +1."""
    lattice = Lattice((6, 6, 6, 6), 3)
    charge = topological_charge(make_flux(lattice, dict.fromkeys(planes, 1)), lattice).item()
    assert charge == pytest.approx(2 if planes[0] == (0, 3) else -2, rel=0.02)


def test_charge_needs_four_dimensions():
    with pytest.raises(ValueError, match="four dimensions"):
        topological_charge(make_cold(LATTICES[0]), LATTICES[0])


def test_flow_damps_a_plane_wave_as_the_heat_equation():
    """A transverse wave of momentum p decays as exp(-t 4 sin^2(p/2))."""
    lattice, amplitude, time = Lattice((8, 3, 2), 3), 1e-4, 1.5
    wave = torch.cos(2 * math.pi / 8 * lattice.coordinates[:, 0].double())
    angles = torch.zeros(3, lattice.volume, dtype=torch.float64)
    angles[1] = amplitude * wave
    flowed = integrate_gradient_flow(make_diagonal(angles), lattice, time, 30)
    decay = math.exp(-time * 4 * math.sin(math.pi / 8) ** 2)
    assert_close(flowed[0, 1, :, 0, 0].imag / amplitude, decay * wave, rtol=1e-5, atol=1e-6)
    assert_close(flowed[0, [0, 2]], make_cold(lattice)[0, [0, 2]], rtol=0, atol=1e-9)


@pytest.mark.parametrize("n_colours", [2, 3])
def test_flow_is_of_third_order_and_smooths(n_colours):
    lattice = Lattice((3, 2, 2, 3), n_colours)
    links = draw_hot(lattice, 1, make_generator())
    ends = [integrate_gradient_flow(links, lattice, 0.4, n) for n in (4, 8, 16)]
    coarse, fine = ((a - b).abs().max().item() for a, b in pairwise(ends))
    assert 6 < coarse / fine < 11  # 8 for the third order
    assert plaquette(links, lattice) < plaquette(ends[-1], lattice)
    gauge = draw_haar(lattice.volume, n_colours, make_generator(1))
    turned = integrate_gradient_flow(transform_gauge(links, gauge, lattice), lattice, 0.4, 16)
    assert_close(turned, transform_gauge(ends[-1], gauge, lattice))


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


@pytest.mark.slow
def test_smoothed_links_have_a_charge():
    """Those of the functions that it is measured by, and E of smooth links is small."""
    lattice, options = (
        Lattice((4, 4, 4, 4), 3),
        ObservableOptions(smooth={"time": 0.5, "steps": 25}),
    )
    links = draw_hot(lattice, 2, torch.Generator().manual_seed(0))
    values = Observables(options, lattice)(links)
    smooth = integrate_gradient_flow(links, lattice, 0.5, 25)
    torch.testing.assert_close(values["charge"], topological_charge(smooth, lattice))
    torch.testing.assert_close(values["charge_square"], values["charge"].square())
    torch.testing.assert_close(values["smooth_energy"], 0.25 * energy_density(smooth, lattice))
    flat = Lattice((4, 4), 3)
    planar = Observables(options, flat)(draw_hot(flat, 1, torch.Generator().manual_seed(0)))
    assert "smooth_energy" in planar
    assert "charge" not in planar
