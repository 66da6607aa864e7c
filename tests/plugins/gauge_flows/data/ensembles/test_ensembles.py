"""Markov chains and their statistics.

Oracles: known answers of Philox; scipy's integrals of the heat bath's density; exact plaquettes of
the two-dimensional torus and strong-coupling series; an identity that every ensemble of an action
obeys; Creutz's <exp(-dH)> = 1; the order of the integrator; an autoregressive process.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from numba import njit
from scipy.integrate import quad
from scipy.stats import kstest
from torch.testing import assert_close

from pipeline_gauge_flows.data.actions import ActionOptions, GaugeAction
from pipeline_gauge_flows.data.datasets import HmcOptions
from pipeline_gauge_flows.data.ensembles import sweeps
from pipeline_gauge_flows.data.ensembles.chains import HmcChains, refuse_stuck
from pipeline_gauge_flows.data.ensembles.hmc import HybridMonteCarlo, TimeScale
from pipeline_gauge_flows.data.ensembles.philox import draw_philox, make_key
from pipeline_gauge_flows.data.ensembles.statistics import (
    ChainRows,
    Estimate,
    compute_drift,
    estimate,
)
from pipeline_gauge_flows.data.ensembles.subgroups import draw_cosine
from pipeline_gauge_flows.data.ensembles.sweeps import Sweeps
from pipeline_gauge_flows.data.exact import expand_characters
from pipeline_gauge_flows.data.lattice import Lattice, draw_hot, make_cold
from pipeline_gauge_flows.data.observables import average_plaquettes, plaquette
from pipeline_gauge_flows.data.theory import compute_known
from plugins.gauge_flows.small import make_generator
from tiers import run_first

SIGMAS = 4.0


def make_action(lattice: Lattice, beta: float, name: str = "wilson", anisotropy: float = 0.0):
    return GaugeAction(ActionOptions(name=name, beta=beta, anisotropy=anisotropy), lattice)


def run_heatbath(ours: GaugeAction, n: int, seed: int = 0, warm: int = 50):
    """Yield configurations (1, D, V, N, N) of a chain; one tensor, changed in place."""
    chain = Sweeps(ours, seed)
    links = draw_hot(ours.lattice, 1, make_generator(seed))
    for i in range(warm + n):
        chain.update_heatbath(links[0].numpy())
        chain.update_overrelaxed(links[0].numpy())
        if i >= warm:
            yield links


def compute_sigmas(estimated: Estimate, expected: float) -> float:
    return abs(estimated.mean - expected) / estimated.error


def compute_plaquette(lattice: Lattice, beta: float) -> float:
    """Return the exact plaquette of a torus, else that of strong coupling."""
    return compute_known(make_action(lattice, beta)).planes.mean()


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
)
def test_philox_gives_the_known_answers(counter, key, expected):
    """Of the file kat_vectors of Random123."""
    assert list(draw_philox(*np.array([*counter, *key], dtype=np.uint32))) == expected


@njit(cache=False)
def _draw_cosines(concentration, n, key):
    values, draw = np.empty(n), 0
    for i in range(n):
        values[i], draw = draw_cosine(
            concentration, draw, (np.uint32(1), np.uint32(2), np.uint32(3)), key
        )
    return values


@pytest.mark.slow
@pytest.mark.parametrize("concentration", [0.0, 0.3, 1.6, 1.8, 6.0, 40.0])
def test_cosines_have_their_density(concentration):
    """Of Creutz's method and of Kennedy and Pendleton's."""

    def density(x: float) -> float:
        return math.sqrt(1 - x * x) * math.exp(concentration * (x - 1))

    values = _draw_cosines(concentration, 20_000, make_key(0, 0))
    norm, _ = quad(density, -1, 1)
    grid = np.linspace(-1, 1, 801)
    parts = [quad(density, a, b)[0] for a, b in pairwise(grid)]
    cumulative = np.concatenate([[0.0], np.cumsum(parts)]) / norm
    assert kstest(values, lambda x: np.interp(x, grid, cumulative)).pvalue > 1e-3


@pytest.mark.parametrize("extents", [(4, 4), (3, 5), (2, 3, 4), (2, 2, 3, 3)])
def test_neighbours_differ_in_colour(extents):
    lattice = Lattice(extents, 3)
    colours = Sweeps(make_action(lattice, 1.0), 0).colours
    assert len(colours) == (3 if any(extent % 2 for extent in extents) else 2)
    assert sorted(np.concatenate(colours)) == list(range(lattice.volume))
    for sites in colours:
        for table in (lattice.forward, lattice.backward):
            assert not np.isin(table.numpy()[:, sites], sites).any()


@pytest.mark.parametrize("lattice", [Lattice((4, 3), 2), Lattice((2, 4, 3), 3)])
def test_overrelaxation_keeps_the_action_and_moves_links(lattice):
    ours = make_action(lattice, 2.0, anisotropy=0.3)
    links = draw_hot(lattice, 1, make_generator())
    before = links.clone()
    chain = Sweeps(ours, 0)
    for _ in range(3):
        chain.update_overrelaxed(links[0].numpy())
    assert_close(ours(links), ours(before), rtol=0, atol=1e-10)
    assert (links - before).abs().amax((-2, -1)).min() > 1e-3


def test_sweeps_depend_on_the_seed_but_not_on_threads(monkeypatch):
    monkeypatch.setattr(sweeps, "_PIECE", 5)
    ours = make_action(Lattice((4, 4, 4), 3), 3.0)

    def swept(seed: int, number: int, threads: int) -> torch.Tensor:
        links = make_cold(ours.lattice)
        chain = Sweeps(ours, seed, number, threads)
        for _ in range(3):
            chain.update_heatbath(links[0].numpy())
        return links

    first = swept(0, 0, 1)
    assert torch.equal(first, swept(0, 0, 2))
    for other in (swept(1, 0, 1), swept(0, 1, 1)):
        assert (first - other).abs().max() > 0.1
    identity = torch.eye(3, dtype=first.dtype).expand_as(first)
    assert_close(first @ first.mH, identity, rtol=0, atol=1e-14)


BATHS = [
    ((3, 5), 3, 2.0, 3000, 4e-3), ((4, 4, 4, 4), 3, 2.0, 1200, 3e-4),
    ((2, 2), 2, 4.0, 3000, 4e-3), ((4, 4), 2, 1.0, 3000, 4e-3), ((4, 4), 3, 6.0, 3000, 4e-3),
    ((4, 4, 4, 4), 2, 0.8, 1200, 5e-4),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", run_first(BATHS))
def test_heatbath_has_the_plaquette_of_the_torus_and_of_strong_coupling(case):
    """In four dimensions the first cube counts: without it SU(3) would be off by 1.8e-4."""
    extents, n_colours, beta, n, precision = case
    lattice = Lattice(extents, n_colours)
    chain = run_heatbath(make_action(lattice, beta), n)
    mean = estimate([np.array([plaquette(links, lattice).item() for links in chain])])
    assert compute_sigmas(mean, compute_plaquette(lattice, beta)) < SIGMAS
    assert mean.error < precision
    assert mean.tau_int < 1


@pytest.mark.slow
def test_heatbath_has_the_anisotropy():
    """At strong coupling a plaquette knows its own coupling only, beta (1 +- lambda)."""
    lattice, ours = Lattice((4, 4, 4), 3), make_action(Lattice((4, 4, 4), 3), 1.0, anisotropy=0.4)
    values = [average_plaquettes(links, lattice)[0].numpy() for links in run_heatbath(ours, 800)]
    for plane, series in enumerate(np.array(values).T):
        sign = 1 if lattice.planes[plane][0] == 0 else -1
        plaquette_mean = estimate([series])
        assert compute_sigmas(plaquette_mean, expand_characters(1.0 + 0.4 * sign, 3).u) < SIGMAS
    assert np.mean(values, axis=0)[0] > 2 * np.mean(values, axis=0)[2]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["wilson", "symanzik"])
def test_integrator_is_reversible_and_of_second_order(name):
    ours = make_action(Lattice((3, 4, 3), 3), 4.0, name)
    links = draw_hot(ours.lattice, 2, make_generator())
    violations = []
    for n_steps in (8, 16, 32):
        sampler = HybridMonteCarlo([TimeScale([ours], n_steps)], 1.0, make_generator(1))
        momenta = sampler.draw_momenta(links)
        start = sampler.energy(links, momenta)
        violations.append(sampler.energy(*sampler.integrate(links, momenta)) - start)
        assert sampler.measure_irreversibility(links) < 1e-12
    for coarse, fine in pairwise(violations):
        assert ((coarse / fine > 3.3) & (coarse / fine < 4.7)).all()  # 4 for the second order


CHAINS = [
    ((4, 4), 3, 6.0, (3, 1.5), 32, (30, 80), 1e-2), ((2, 3), 2, 2.0, (3, 1.5), 32, (30, 80), 1e-2),
    ((4, 4, 4), 2, 1.0, (4, 1.5), 32, (30, 70), 2e-3),
    ((4, 4, 4, 4), 3, 2.0, (5, 1.0), 6, (8, 32), 8e-4),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", run_first(CHAINS))
def test_hmc_has_the_exact_plaquette_whatever_the_step(case):
    """A step so long that a part is refused: the acceptance test makes up for it."""
    extents, n_colours, beta, (n_steps, tau), n_chains, updates, precision = case
    lattice = Lattice(extents, n_colours)
    scale = TimeScale([make_action(lattice, beta)], n_steps)
    sampler = HybridMonteCarlo([scale], tau, make_generator())
    links, chains, weights, accepted = draw_hot(lattice, n_chains, make_generator(1)), [], [], []
    for i in range(sum(updates)):
        trajectory = sampler.run_trajectory(links)
        links = trajectory.links
        if i >= updates[0]:
            chains.append(plaquette(links, lattice).numpy())
            weights.append((-trajectory.violation).exp().numpy())
            accepted.append(trajectory.accepted.double().mean().item())
    mean, weight = (estimate(list(np.array(values).T)) for values in (chains, weights))
    assert compute_sigmas(mean, compute_plaquette(lattice, beta)) < SIGMAS
    assert mean.error < precision
    assert compute_sigmas(weight, 1.0) < SIGMAS
    assert np.mean(accepted) < 0.99


@pytest.mark.slow
@pytest.mark.parametrize("name", run_first(["symanzik", "iwasaki"]))
def test_hmc_of_improved_actions_obeys_the_identity(name):
    ours = make_action(Lattice((4, 3), 3), 3.0, name)
    sampler = HybridMonteCarlo([TimeScale([ours], 6)], 1.0, make_generator())
    links, squares, laplacians = draw_hot(ours.lattice, 64, make_generator(1)), [], []
    for i in range(50):
        links = sampler.run_trajectory(links).links
        if i >= 20:
            square, laplacian = ours.compute_identity_terms(links)
            squares.append(square.numpy())
            laplacians.append(laplacian.numpy())
    difference = estimate(list((np.array(squares) - np.array(laplacians)).T))
    assert compute_sigmas(difference, 0.0) < SIGMAS
    assert difference.error < 0.05 * np.mean(laplacians)


def test_hmc_refuses_links_without_an_action():
    lattice = Lattice((4, 4), 3)
    links = make_cold(lattice)
    links[0, 0, 0] = math.nan
    with pytest.raises(ValueError, match="action of the links is nan"):
        HybridMonteCarlo(
            [TimeScale([make_action(lattice, 1.0)], 2)], 1.0, make_generator()
        ).run_trajectory(links)


def test_a_chain_that_never_moves_is_refused_and_one_that_rests_is_not():
    accepted = torch.ones(64, 40, dtype=torch.bool)
    accepted[3] = False
    with pytest.raises(ValueError, match=r"1 of 64 chains accepted none of 40 .*n_steps"):
        refuse_stuck(accepted)
    accepted[3, 20] = True
    refuse_stuck(accepted)
    # One of sixteen that refuses five times where every third is refused is no wonder.
    few = torch.rand(16, 5, generator=torch.Generator().manual_seed(0)) < 2 / 3
    few[0] = False
    refuse_stuck(few)


@pytest.mark.parametrize("thermalised", [False, True])
def test_steps_that_are_too_long_are_found_with_the_thermalisation_and_after(thermalised):
    options = HmcOptions(
        method="hmc", n_configurations=2, chains=2, start="cold", n_steps=1, tau=3.0
    )
    chains = HmcChains(ActionOptions(beta=60.0), Lattice((2, 2), 3), options, 100)
    for _ in range(110):
        chains.update()
    with pytest.raises(ValueError, match=r"2 of 2 chains accepted none of 110"):
        chains.summarize() if thermalised else chains.begin()


def draw_autoregressive(n: int, rho: float, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=n) * (1 - rho**2) ** 0.5
    series = np.empty(n)
    series[0] = rng.normal()
    for i in range(1, n):
        series[i] = rho * series[i - 1] + noise[i]
    return series


@pytest.mark.parametrize("rho", [0.0, 0.6, 0.9])
def test_autocorrelation_of_an_autoregressive_process(rho):
    """tau_int = (1/2)(1 + rho)/(1 - rho), error = sqrt(2 tau_int / n)."""
    tau, n = 0.5 * (1 + rho) / (1 - rho), 20_000
    average = estimate([draw_autoregressive(n // 4, rho, seed) + 3 for seed in range(4)])
    assert average.count == n
    assert abs(average.tau_int - tau) < SIGMAS * max(average.tau_error, 0.01)
    assert average.error == pytest.approx((2 * tau / n) ** 0.5, rel=0.2)
    assert compute_sigmas(average, 3.0) < SIGMAS


def test_short_and_constant_series():
    short = estimate([np.array([1.0, 2.0, 3.0])])
    assert (short.mean, short.tau_int, short.count) == (2.0, None, 3)
    assert short.error == pytest.approx((2 / 3) ** 0.5 / 2**0.5)
    assert estimate([np.full(50, 2.5)]) == Estimate(2.5, 0.0, 0.5, 0.0, 50)
    assert estimate([np.array([7.0])]).error == 0.0


def test_short_chains_have_the_autocorrelation_of_others():
    """That of long chains beside them, or one that is given."""
    rho, n = 0.8, 20_000
    tau = 0.5 * (1 + rho) / (1 - rho)
    series = draw_autoregressive(n, rho, 0)
    pieces = [series[i : i + 10] for i in range(0, n, 10)]
    given = estimate(pieces, tau)
    assert (given.tau_int, given.tau_error) == (tau, None)
    assert given.error == pytest.approx((2 * tau / n) ** 0.5, rel=0.1)
    mixed = estimate([series[: n // 2], *(series[i : i + 10] for i in range(n // 2, n, 10))])
    assert mixed.tau_int == pytest.approx(tau, rel=0.25)
    assert mixed.error == pytest.approx((2 * tau / n) ** 0.5, rel=0.15)
    assert ChainRows([np.arange(5)]).estimate(series).tau_int is None


def test_drift_is_seen():
    noise = draw_autoregressive(400, 0.3, 0)
    assert abs(compute_drift([noise])) < SIGMAS
    assert compute_drift([noise + np.linspace(0, 3, 400)]) > SIGMAS
    assert compute_drift([noise[:20]]) is None
