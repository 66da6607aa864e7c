"""Sources of propagators.

Oracle: the sum over all points of a slice, which the mean over all noise vectors equals exactly.
"""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.testing import assert_close

from pipeline_gauge_flows.datasets import FermionOptions
from pipeline_gauge_flows.fermions.correlators import compute_pion_correlator, correlate_pion
from pipeline_gauge_flows.fermions.sources import (
    Sources,
    draw_sources,
    make_point_sources,
    stack_sources,
)
from pipeline_gauge_flows.lattice import Lattice, draw_hot
from plugins.gauge_flows.small import make_generator

QUARKS = FermionOptions(kappa=0.18, two_kappa_mu=0.1)


def test_all_signs_together_are_all_points_of_the_slice():
    lattice = Lattice((4, 2), 2)
    links = draw_hot(lattice, 2, make_generator())
    signs = torch.tensor(list(itertools.product((1.0, -1.0), repeat=8)))  # sites, spins, colours
    spinors = torch.zeros(256, 8, 2, 2, dtype=torch.complex128)
    spinors[:, 2:4] = signs.reshape(256, 2, 2, 2).to(spinors.dtype)
    noise = Sources(spinors, torch.ones(256, dtype=torch.int64), 1 / (256 * 2))
    points = [compute_pion_correlator(links, lattice, QUARKS, site) for site in (2, 3)]
    mean = correlate_pion(links, lattice, QUARKS, stack_sources([noise]))
    assert_close(mean, torch.stack(points).mean(0), rtol=1e-9, atol=0)


@pytest.mark.parametrize(("kind", "order"), [("z2", 2), ("z4", 4)])
def test_noise_is_on_one_slice(kind, order):
    lattice = Lattice((4, 2, 2, 2), 3)
    sources = draw_sources(kind, 5, lattice, make_generator())
    on_slice = lattice.coordinates[:, 0] == sources.times[:, None]
    elsewhere, there = sources.spinors[~on_slice], sources.spinors[on_slice]
    assert not elsewhere.any()
    one = torch.ones(there.shape, dtype=there.dtype)
    assert_close((there**order) * (there[0, 0, 0] ** order).conj(), one)
    assert abs(there.mean()) < 4 * there.numel() ** -0.5
    assert len(sources.times.unique()) > 1


def test_several_points_are_averaged():
    lattice = Lattice((4, 2, 2, 2), 3)
    links = draw_hot(lattice, 1, make_generator())
    sites = [3, 17]
    points = [compute_pion_correlator(links, lattice, QUARKS, site) for site in sites]
    both = correlate_pion(
        links, lattice, QUARKS, stack_sources([make_point_sources(lattice, sites)])
    )
    assert_close(both, torch.stack(points).mean(0), rtol=1e-9, atol=0)
    drawn = draw_sources("point", 2, lattice, make_generator())
    assert drawn.spinors.shape == (24, 32, 4, 3)
    assert (drawn.spinors.sum((0, 2, 3)).real.nonzero()[:, 0] // 8).tolist() == sorted(
        drawn.times[::12].tolist()
    )
