"""Pseudofermions and Hybrid Monte Carlo with quarks.

Oracles: differences along the group; exact determinants; heat bath of the gauge action, reweighted
by them; Creutz's <exp(-dH)> = 1; an identity that every ensemble of an action obeys.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from pipeline_gauge_flows.data.actions import GaugeAction
from pipeline_gauge_flows.data.datasets import ActionOptions, FermionOptions, HmcOptions
from pipeline_gauge_flows.data.ensembles.chains import HmcChains, make_time_scales
from pipeline_gauge_flows.data.ensembles.hmc import HybridMonteCarlo
from pipeline_gauge_flows.data.ensembles.statistics import estimate
from pipeline_gauge_flows.data.ensembles.sweeps import Sweeps
from pipeline_gauge_flows.data.fermions import pseudofermions
from pipeline_gauge_flows.data.fermions.determinant import compute_log_determinant
from pipeline_gauge_flows.data.fermions.pseudofermions import Pseudofermions
from pipeline_gauge_flows.data.lattice import Lattice, draw_hot
from pipeline_gauge_flows.data.loops import project_to_algebra
from pipeline_gauge_flows.data.observables import plaquette
from pipeline_kernels.su3 import exponential
from plugins.gauge_flows.small import check_force, make_generator
from tiers import run_first

SIGMAS = 4.0
KAPPA, MU, HEAVY = 0.21, 0.15, 0.6
LATTICES = [Lattice((4, 4), 3), Lattice((2, 6), 2), Lattice((2, 2, 4, 2), 3)]
KINDS = {"determinant": None, "ratio": HEAVY}
THEORY = ActionOptions(beta=2.0, fermions=FermionOptions(kappa=KAPPA, two_kappa_mu=MU))


def make_options(n_steps: int | list[int], masses: tuple[float, ...] = ()) -> HmcOptions:
    content = {"n_configurations": 64, "chains": 64, "start": "cold"}
    return HmcOptions(method="hmc", n_steps=n_steps, masses=list(masses), **content)


@pytest.mark.parametrize("heavier", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("lattice", LATTICES)
def test_force_is_the_slope_of_the_action(lattice, heavier, monkeypatch):
    for name in ("_TOLERANCE", "_FORCE_TOLERANCE"):
        monkeypatch.setattr(pseudofermions, name, 1e-14)
    quarks = Pseudofermions(lattice, KAPPA, MU, heavier)
    links = draw_hot(lattice, 2, make_generator())
    quarks.refresh(links, make_generator(2))
    check_force(quarks, links)


@pytest.mark.parametrize("heavier", KINDS.values(), ids=KINDS)
def test_pseudofermions_have_the_action_of_what_they_were_drawn_from(heavier):
    """S = |chi|^2 at the links of the heat bath."""
    lattice = LATTICES[2]
    quarks, links = Pseudofermions(lattice, KAPPA, MU, heavier), draw_hot(lattice, 2)
    quarks.refresh(links, make_generator(3))
    shape = 2, 1, lattice.volume // 2, 4, 3
    chi = torch.randn(shape, generator=make_generator(3), dtype=torch.complex128)
    assert_close(quarks(links), chi.abs().square().flatten(1).sum(1), rtol=1e-9, atol=0)


def compute_exact_force(links: torch.Tensor, lattice: Lattice, heavier: float | None = None):
    """Return the force of the determinant, or of a ratio of two."""
    leaf = links.clone().requires_grad_()
    weight = 2 * compute_log_determinant(leaf, lattice, KAPPA, MU)
    if heavier is not None:
        weight = weight - 2 * compute_log_determinant(leaf, lattice, KAPPA, heavier)
    (gradient,) = torch.autograd.grad(weight.sum(), leaf)
    return -project_to_algebra(links @ gradient.mH) / 2


@pytest.mark.parametrize("heavier", KINDS.values(), ids=KINDS)
def test_pseudofermions_weigh_links_by_determinants(heavier):
    """<exp(S(U) - S(U'))> over phi drawn at U is the ratio of the determinants at U' and U."""
    lattice = LATTICES[0]
    quarks = Pseudofermions(lattice, KAPPA, MU, heavier)
    old = draw_hot(lattice, 1, make_generator())
    force = compute_exact_force(old, lattice, heavier)
    # To first order the determinant grows by a factor of exp(0.2).
    new = exponential(0.1 / force.abs().square().sum() * force) @ old

    def weigh(two_kappa_mu: float) -> torch.Tensor:
        values = [compute_log_determinant(x, lattice, KAPPA, two_kappa_mu) for x in (old, new)]
        return 2 * (values[1] - values[0])

    expected = (weigh(MU) - (0 if heavier is None else weigh(heavier))).exp().item()
    links = old.expand(2000, *old.shape[1:])
    quarks.refresh(links, make_generator(4))
    ratios = (quarks(links) - quarks(new.expand_as(links))).exp()
    error = ratios.std().item() / len(ratios) ** 0.5
    assert abs(ratios.mean().item() - expected) < SIGMAS * error
    assert error < 0.1 * abs(expected - 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    run_first([([1, 2, 3], (HEAVY,)), (8, ()), ([1, 4], ()), (6, (HEAVY,))]),
)
def test_integrator_is_reversible_and_of_second_order(case):
    n_steps, masses = case
    lattice = LATTICES[0]
    links = draw_hot(lattice, 4, make_generator())
    violations = []
    for factor in (2, 4):
        finer = n_steps * factor if isinstance(n_steps, int) else list(n_steps)
        if isinstance(finer, list):
            finer[-1] *= factor
        scales = make_time_scales(THEORY, lattice, make_options(finer, masses))
        sampler = HybridMonteCarlo(scales, 1.0, make_generator(6))
        momenta = sampler.refresh(links)
        start = sampler.energy(links, momenta)
        violations.append(sampler.energy(*sampler.integrate(links, momenta)) - start)
        assert sampler.measure_irreversibility(links) < 1e-9
    coarse, fine = violations
    assert 3.0 < coarse.norm() / fine.norm() < 5.0  # 4 for the second order


def measure_reweighted(lattice: Lattice, n: int) -> tuple[float, float]:
    """Return the plaquette with quarks, and its error, from heat bath and exact determinants."""
    links = draw_hot(lattice, 1, make_generator())
    sweeps, kept = Sweeps(GaugeAction(ActionOptions(beta=THEORY.beta), lattice), 0), []
    for _ in range(n):
        sweeps.update_heatbath(links[0].numpy())
        sweeps.update_overrelaxed(links[0].numpy())
        kept.append(links[0].clone())
    all_links = torch.stack(kept[50:])
    log_w = 2 * compute_log_determinant(all_links, lattice, KAPPA, MU)
    w, values = (log_w - log_w.max()).exp().numpy(), plaquette(all_links, lattice).numpy()
    mean = (w * values).mean() / w.mean()
    error = estimate([w * (values - mean) / w.mean()]).error
    assert abs(mean - values.mean()) > 4 * error, "quarks would not be seen"
    return mean, error


@pytest.mark.slow
@pytest.mark.parametrize("lattice", run_first([Lattice((4, 2), 2), Lattice((4, 4), 3)]))
@pytest.mark.parametrize("steps", run_first([([1, 1, 2], (HEAVY,)), (4, ())]))
def test_hmc_agrees_with_reweighting_by_exact_determinants(lattice, steps):
    expected, error = measure_reweighted(lattice, 4000)
    chains = HmcChains(THEORY, lattice, make_options(*steps), 30)
    for _ in range(15):
        chains.update()
    chains.begin()
    values = []
    for _ in range(30):
        chains.update()
        values.append(plaquette(chains.links, lattice).numpy())
    average, facts = estimate(list(np.array(values).T)), chains.summarize()
    combined = math.hypot(average.error, error)
    assert abs(average.mean - expected) < SIGMAS * combined
    assert combined < 0.01
    weight = facts["exp_minus_violation"]
    assert abs(weight["mean"] - 1) < SIGMAS * weight["error"]
    assert 0.5 < facts["acceptance"] < 0.999
    assert facts["irreversibility"] < 1e-9
