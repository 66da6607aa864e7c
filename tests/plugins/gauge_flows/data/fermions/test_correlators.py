"""Correlators of mesons, and the sources of their propagators.

Oracles: the exact propagator of free quarks in momentum space (Gattringer and Lang, Quantum
Chromodynamics on the Lattice, section 5.1); translations; the sum over all points
of a slice, which the mean over all noise vectors equals exactly.
"""

import itertools
import math

import pytest
import torch
from torch.testing import assert_close

from pipeline_gauge_flows.data.datasets import FermionOptions
from pipeline_gauge_flows.data.fermions.correlators import correlate_pion
from pipeline_gauge_flows.data.fermions.sources import Sources, draw_sources
from pipeline_gauge_flows.data.lattice import Lattice, draw_hot, make_cold
from plugins.gauge_flows.small import make_generator

QUARKS = FermionOptions(kappa=0.12, two_kappa_mu=0.2)
LIGHT = FermionOptions(kappa=0.18, two_kappa_mu=0.1)


def correlate_point(links, lattice, quarks, site=0):
    """The correlator of a source at one site, with all spins and colours there."""
    d, n = lattice.dimension, lattice.n_colours
    spinors = torch.zeros(d * n, lattice.volume, d * n, dtype=torch.complex128)
    spinors[:, site] = torch.eye(d * n)
    times = lattice.coordinates[site, 0].expand(d * n)
    point = Sources(spinors.reshape(1, -1, lattice.volume, d, n), times[None], 1.0)
    return correlate_pion(links, lattice, quarks, point)


@pytest.mark.parametrize("extents", [(8, 4), (6, 2, 4, 2)])
def test_pion_of_free_quarks(extents):
    """|S(t, p)|^2 = S N / B in momentum space, B as below; C(t) sums over the momenta of space."""
    lattice = Lattice(extents, 2)
    kappa, mu = QUARKS.kappa, QUARKS.two_kappa_mu
    momenta = [
        2 * math.pi * (torch.arange(n).double() + (0.5 if nu == 0 else 0)) / n
        for nu, n in enumerate(extents)
    ]
    p = torch.stack(torch.meshgrid(*momenta, indexing="ij"), -1)  # (T, ..., D)
    A = 1 - 2 * kappa * p.cos().sum(-1)
    B = A**2 + 4 * kappa**2 * p.sin().square().sum(-1) + mu**2
    # Components of S(p) along 1, gamma_nu and gamma5, which are orthogonal under the trace.
    parts = [A, *(-2 * kappa * p.sin()).unbind(-1), torch.full_like(A, mu)]
    wave = torch.polar(
        torch.ones(extents[0], extents[0]).double(),
        torch.outer(torch.arange(extents[0]).double(), momenta[0]),
    )
    expected = torch.zeros(extents[0]).double()
    for part in parts:
        in_time = torch.einsum("tk,k...->t...", wave, (part / B).to(wave.dtype)) / extents[0]
        expected += in_time.abs().square().flatten(1).sum(1)
    expected *= lattice.dimension * lattice.n_colours / math.prod(extents[1:])
    measured = correlate_point(make_cold(lattice), lattice, QUARKS)
    assert_close(measured, expected[None], rtol=1e-9, atol=0)


def test_time_is_counted_from_the_source():
    lattice = Lattice((4, 2, 2, 2), 3)
    links = draw_hot(lattice, 2, make_generator())
    source = 2 * 8 + 5  # t = 2
    moved = links.reshape(2, 4, 4, 2, 2, 2, 3, 3).roll((-2, -1, 0, -1), (2, 3, 4, 5))
    there = correlate_point(links, lattice, QUARKS, source)
    # Antiperiodic quarks see no difference: signs of a gauge transformation.
    here = correlate_point(moved.reshape(links.shape), lattice, QUARKS)
    assert_close(there, here, rtol=1e-9, atol=0)
    assert (there[:, 0] > there[:, 2]).all()


def test_all_signs_together_are_all_points_of_the_slice():
    lattice = Lattice((4, 2), 2)
    links = draw_hot(lattice, 2, make_generator())
    signs = torch.tensor(list(itertools.product((1.0, -1.0), repeat=8)))  # sites, spins, colours
    spinors = torch.zeros(256, 8, 2, 2, dtype=torch.complex128)
    spinors[:, 2:4] = signs.reshape(256, 2, 2, 2).to(spinors.dtype)
    noise = Sources(spinors[None], torch.ones(1, 256, dtype=torch.int64), 1 / (256 * 2))
    points = [correlate_point(links, lattice, LIGHT, site) for site in (2, 3)]
    mean = correlate_pion(links, lattice, LIGHT, noise)
    assert_close(mean, torch.stack(points).mean(0), rtol=1e-9, atol=0)


def test_noise_is_on_one_slice():
    lattice = Lattice((4, 2, 2, 2), 3)
    sources = draw_sources(5, lattice, [make_generator()])
    spinors, times = sources.spinors[0], sources.times[0]
    on_slice = lattice.coordinates[:, 0] == times[:, None]
    elsewhere, there = spinors[~on_slice], spinors[on_slice]
    assert not elsewhere.any()
    one = torch.ones(there.shape, dtype=there.dtype)
    assert_close((there**4) * (there[0, 0, 0] ** 4).conj(), one)
    assert abs(there.mean()) < 4 * there.numel() ** -0.5
    assert len(times.unique()) > 1
