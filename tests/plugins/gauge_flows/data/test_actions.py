"""Gauge actions.

Oracles: sums over loops by coordinates; the classical continuum limit; finite differences; Eq. 16
of arXiv:2502.00263.
"""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from pipeline_gauge_flows.data.actions import ActionOptions, GaugeAction
from pipeline_gauge_flows.data.lattice import Lattice, draw_hot, make_cold
from pipeline_kernels.su3 import draw_haar
from plugins.gauge_flows.small import check_force, make_generator, transform_gauge

LATTICES = [Lattice((4, 3), 3), Lattice((2, 3, 2), 2), Lattice((3, 2, 4, 2), 3)]
NAMES = ["wilson", "symanzik", "iwasaki"]


def make_action(
    name: str, lattice: Lattice, beta: float = 2.3, anisotropy: float = 0.2
) -> GaugeAction:
    return GaugeAction(ActionOptions(name=name, beta=beta, anisotropy=anisotropy), lattice)


def sum_loops(links: torch.Tensor, lattice: Lattice, sides: tuple[int, int], plane) -> float:
    """Return the sum of Re tr over rectangles in one plane, one configuration, site by site."""
    n, (mu, nu) = lattice.n_colours, plane
    grid = links.reshape(lattice.dimension, *lattice.extents, n, n)

    def link(direction: int, site: list[int]) -> torch.Tensor:
        wrapped = [x % extent for x, extent in zip(site, lattice.extents, strict=True)]
        return grid[(direction, *wrapped)]

    total = 0.0
    for start in lattice.coordinates.tolist():
        site, product = list(start), torch.eye(n, dtype=links.dtype)
        for direction, length, step in ((mu, 0, 1), (nu, 1, 1), (mu, 0, -1), (nu, 1, -1)):
            for _ in range(sides[length]):
                site[direction] += min(step, 0)
                loop = link(direction, site)
                product = product @ (loop if step > 0 else loop.mH)
                site[direction] += max(step, 0)
        total += product.diagonal().sum().real.item()
    return total


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("lattice", LATTICES)
def test_action_is_the_sum_over_loops(name, lattice):
    ours = make_action(name, lattice)
    links = draw_hot(lattice, 2, make_generator())
    c1 = {"wilson": 0.0, "symanzik": -1 / 12, "iwasaki": -0.331}[name]
    for configuration, value in zip(links, ours(links), strict=True):
        expected = 0.0
        for plane in lattice.planes:
            weight = 1 - 8 * c1 + (0.2 if plane[0] == 0 else -0.2)
            expected += weight * sum_loops(configuration, lattice, (1, 1), plane)
            for sides in ((1, 2), (2, 1)):
                expected += c1 * sum_loops(configuration, lattice, sides, plane)
        assert value.item() == pytest.approx(-2.3 / lattice.n_colours * expected, rel=1e-12)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("lattice", LATTICES)
def test_action_does_not_depend_on_the_gauge_and_force_turns_with_it(name, lattice):
    ours = make_action(name, lattice)
    links = draw_hot(lattice, 2, make_generator())
    gauge = draw_haar(lattice.volume, lattice.n_colours, make_generator(1))
    turned = transform_gauge(links, gauge, lattice)
    assert_close(ours(turned), ours(links), rtol=1e-13, atol=1e-12)
    assert_close(ours.force(turned), gauge @ ours.force(links) @ gauge.mH)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("lattice", LATTICES)
def test_force_is_the_slope_of_the_action(name, lattice):
    check_force(make_action(name, lattice), draw_hot(lattice, 2, make_generator()))


@pytest.mark.parametrize("lattice", LATTICES)
def test_operator_is_the_derivative_by_the_anisotropy(lattice):
    links = draw_hot(lattice, 3, make_generator())
    with_it, without = (
        make_action("wilson", lattice),
        make_action("wilson", lattice, anisotropy=0.0),
    )
    # Eq. 16 as it stands.
    sums = [[sum_loops(one, lattice, (1, 1), plane) for plane in lattice.planes] for one in links]
    signs = [1 if mu == 0 else -1 for mu, _ in lattice.planes]
    expected = -2.3 / lattice.n_colours * torch.tensor(sums) @ torch.tensor(signs).float()
    assert_close((with_it(links) - without(links)) / 0.2, expected.double(), rtol=1e-5, atol=1e-5)


def test_numbers_are_double_for_links_of_single_precision():
    lattice = Lattice((4, 4, 4), 3)
    links = draw_hot(lattice, 2, make_generator())
    ours = make_action("symanzik", lattice)
    single = links.to(torch.complex64)
    assert ours(single).dtype == torch.float64
    assert_close(ours(single), ours(links), rtol=1e-6, atol=1e-4)
    assert ours.force(single).dtype == torch.complex64
    assert_close(ours.force(single), ours.force(links).to(torch.complex64), rtol=1e-4, atol=1e-5)


def test_identity_needs_links_that_a_rectangle_holds_once():
    with pytest.raises(ValueError, match="hold a link twice"):
        make_action("symanzik", Lattice((2, 4), 3)).compute_identity_terms(
            make_cold(Lattice((2, 4), 3))
        )


def test_haar_links_have_the_identity_of_every_action():
    """At beta -> 0 both sides are known: <|grad S|^2> = beta^2 (N^2-1)/N^3 n_plaquettes."""
    lattice = Lattice((6, 6, 6), 3)
    square, _ = make_action("wilson", lattice, anisotropy=0.0).compute_identity_terms(
        draw_hot(lattice, 40, make_generator())
    )
    expected = 2.3**2 * 8 / 27 * lattice.n_plaquettes
    error = square.std() / 40**0.5
    assert abs(square.mean() - expected) < 4 * error
    assert error < 0.01 * expected
