"""Flows of pseudofermions, and ratios of determinants from noise shots.

Oracles: exact determinants and dense matrices; gauge transformations; the inverse of the Dirac
operator, with which weights have no variance; moments of a complex normal distribution,
<exp(|chi|^2 - |K chi|^2)> = 1 / |det K|^2.
"""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from pipeline_gauge_flows.data.datasets import FermionOptions
from pipeline_gauge_flows.data.fermions.determinant import build_matrix, compute_log_determinant
from pipeline_gauge_flows.data.fermions.solver import DiracSolver
from pipeline_gauge_flows.data.lattice import Lattice
from pipeline_gauge_flows.data.loops import project_to_algebra
from pipeline_gauge_flows.model.pseudofermion_flow import (
    Operators,
    PseudofermionFlow,
    list_masks,
    make_mask,
)
from pipeline_gauge_flows.model.pseudofermion_shots import (
    compute_action,
    draw_noise,
    make_operators,
    weigh_by_path,
    weigh_shots,
)
from plugins.gauge_flows.small import draw_gauge, transform_gauge

SQUARE, BOX = Lattice((4, 4), 3), Lattice((4, 4, 4, 4), 2)
QUARKS = FermionOptions(kappa=0.2, two_kappa_mu=0.1)
LIGHTER = FermionOptions(kappa=0.21, two_kappa_mu=0.08)
SIGMAS = 4.0


def draw_pair(
    lattice: Lattice, n: int = 2, size: float = 0.05
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return smooth links, and others that are near them, (n, D, V, N, N) each."""
    generator = torch.Generator().manual_seed(0)
    shape = n, *lattice.shape
    first, second = (
        project_to_algebra(torch.randn(shape, generator=generator, dtype=torch.complex128))
        for _ in range(2)
    )
    links = torch.linalg.matrix_exp(0.3 * first)
    return links, torch.linalg.matrix_exp(size * second) @ links


def make_pair(lattice: Lattice, n: int = 2, quarks=(QUARKS, QUARKS)) -> Operators:
    return make_operators(*draw_pair(lattice, n), lattice, quarks)


def make_random_flow(lattice: Lattice, n_layers: int = 8, size: float = 0.05) -> PseudofermionFlow:
    generator = torch.Generator().manual_seed(1)
    flow = PseudofermionFlow(n_layers, lattice).double()
    with torch.no_grad():
        for p in flow.parameters():
            p.add_(torch.randn(p.shape, generator=generator, dtype=p.dtype), alpha=size)
    return flow


def draw_shots(lattice: Lattice, n: int = 2, n_shots: int = 2) -> torch.Tensor:
    return draw_noise(lattice, n_shots, [(7, k) for k in range(n)])


def build_dense(flow: PseudofermionFlow, operators: Operators, lattice: Lattice) -> torch.Tensor:
    """Return T as matrices, (batch, n, n)."""
    n = lattice.volume // 2 * lattice.dimension * lattice.n_colours
    one = torch.eye(n, dtype=torch.complex128)
    units = one.reshape(1, n, lattice.volume // 2, lattice.dimension, lattice.n_colours)
    units = units.expand(len(operators.before.links), *units.shape[1:])
    return flow(units, operators, lattice).flatten(2).mT


def build_weights(flow: PseudofermionFlow, operators: Operators, lattice: Lattice) -> torch.Tensor:
    """Return K = M'^-dagger T M^dagger: weights are exp(|chi|^2 - |K chi|^2), up to a factor."""
    before, after = (build_matrix(one) for one in operators)
    return torch.linalg.solve(after.mH, build_dense(flow, operators, lattice) @ before.mH)


@torch.no_grad()
def compute_exact(flow: PseudofermionFlow, operators: Operators, lattice: Lattice):
    """Return KL(q, p) given the links, and the effective sample size, (batch,) each."""
    s = torch.linalg.svdvals(build_weights(flow, operators, lattice)).square()
    return (s - 1 - s.log()).sum(-1), ((2 * s - 1) / s.square()).prod(-1)


@pytest.mark.parametrize("lattice", [SQUARE, BOX])
def test_layers_move_each_site_as_often(lattice):
    masks = list_masks(16, lattice.dimension)
    assert masks == masks[::-1]
    active = torch.stack([make_mask(mask, lattice, torch.device("cpu")) for mask in masks])
    assert (active.sum(0) == 8).all()
    assert (active.flatten(1).sum(1) == lattice.volume // 4).all()


@pytest.mark.parametrize("lattice", [SQUARE, BOX])
def test_a_flow_has_its_inverse_and_needs_no_determinant(lattice):
    flow, operators = make_random_flow(lattice), make_pair(lattice)
    chi = draw_shots(lattice)
    with torch.no_grad():
        mapped = flow(chi, operators, lattice)
        assert (mapped - chi).abs().max() > 0.05
        assert_close(flow(mapped, operators, lattice, inverse=True), chi)
    if lattice is SQUARE:
        determinant = torch.linalg.det(build_dense(flow, operators, lattice))
        assert_close(determinant, torch.ones_like(determinant))


@pytest.mark.parametrize("lattice", [SQUARE, BOX])
def test_a_flow_turns_with_the_gauge(lattice):
    flow, chi = make_random_flow(lattice), draw_shots(lattice)
    pair, gauge = draw_pair(lattice), draw_gauge(lattice)
    odd = lattice.coordinates.sum(1) % 2 == 1
    turn = gauge[:, None, odd]  # (batch, 1, V / 2, N, N)
    turned = tuple(transform_gauge(links, gauge, lattice) for links in pair)
    with torch.no_grad():
        ours, theirs = (
            flow(phi, make_operators(*links, lattice, (QUARKS, QUARKS)), lattice)
            for phi, links in ((chi, pair), (chi @ turn.mT, turned))
        )
    assert_close(ours @ turn.mT, theirs)


def test_a_flow_starts_as_a_map_to_the_same_links():
    """It is 1 where the links do not move, and better than 1 where they do."""
    flow, operators = PseudofermionFlow(16, SQUARE), make_pair(SQUARE)
    chi = draw_shots(SQUARE)
    still = Operators(operators.before, operators.before)
    with torch.no_grad():
        assert_close(flow(chi, still, SQUARE), chi)
    (ours, ess), (idle, ess_idle) = (
        compute_exact(one, operators, SQUARE) for one in (flow, make_idle_flow())
    )
    assert (ours < idle / 3).all()
    assert (ess > ess_idle).all()


def make_idle_flow() -> PseudofermionFlow:
    flow = PseudofermionFlow(2, SQUARE)
    with torch.no_grad():
        for p in flow.parameters():
            p.zero_()
    return flow


@pytest.mark.slow
@pytest.mark.parametrize(
    "flow", [None, make_random_flow(SQUARE, size=0.01)], ids=["none", "random"]
)
@pytest.mark.parametrize("quarks", [(QUARKS, QUARKS), (QUARKS, LIGHTER)], ids=["same", "lighter"])
def test_weights_have_the_ratio_of_determinants_as_their_mean(flow, quarks):
    """And the effective sample size that the normal distribution gives them."""
    pair = draw_pair(SQUARE)
    operators = make_operators(*pair, SQUARE, quarks)
    chi = draw_shots(SQUARE, n_shots=2000)
    start, end = (
        compute_log_determinant(links, SQUARE, one.kappa, one.two_kappa_mu)
        for links, one in zip(pair, quarks, strict=True)
    )
    # The diagonal of even sites, which is not in Mhat, has no links.
    constant = [compute_diagonal(one) for one in quarks]
    expected = 2 * (end - start - constant[1] + constant[0])
    ratio = (weigh_shots(flow, chi, operators, SQUARE) - expected[:, None]).exp()
    error = ratio.std(1) / ratio.shape[1] ** 0.5
    assert ((ratio.mean(1) - 1).abs() < SIGMAS * error).all()
    assert (error < 0.03).all()
    _, ess = compute_exact(flow or make_idle_flow(), operators, SQUARE)
    assert_close(ratio.mean(1) ** 2 / ratio.square().mean(1), ess, rtol=0.05, atol=0)


def compute_diagonal(quarks: FermionOptions) -> float:
    """Return log det of 1 + i mu~ gamma5 on the even sites."""
    n = SQUARE.volume // 2 * SQUARE.dimension * SQUARE.n_colours
    return n / 2 * torch.tensor(1 + quarks.two_kappa_mu**2).double().log().item()


def test_weights_of_the_best_map_have_no_variance():
    """With T = M'^dagger M^-dagger, by an inverse, each shot has the ratio of determinants."""
    operators, chi = make_pair(SQUARE), draw_shots(SQUARE, n_shots=5)
    phi = operators.before.apply_even_odd(chi, adjoint=True)
    solver = DiracSolver(operators.before, 1e-12)
    best = operators.after.apply_even_odd(solver.solve_even_odd(phi, adjoint=True), adjoint=True)
    assert_close(
        compute_action(best, operators.after), compute_action(phi, operators.before),
        rtol=1e-8, atol=0,
    )  # fmt: skip


@pytest.mark.slow
def test_path_gradients_are_those_of_the_divergence():
    """On average: d KL / d weights from dense matrices; and each is that of log w by T phi."""
    flow, operators = make_random_flow(SQUARE, 4, 0.1), make_pair(SQUARE, 1)
    weights = list(flow.parameters())
    # The mean of -log w is tr K^dagger K less a constant.
    mean = build_weights(flow, operators, SQUARE).abs().square().sum()
    exact = torch.autograd.grad(mean, weights)
    chi = draw_shots(SQUARE, 1, 4000)
    log_weight = weigh_by_path(flow, chi, operators, SQUARE)
    assert_close(log_weight.detach(), weigh_shots(flow, chi, operators, SQUARE))
    ours = torch.autograd.grad(-log_weight.mean(), weights)
    size = torch.stack([g.norm() for g in exact]).norm()
    error = torch.stack([(a - b).norm() for a, b in zip(ours, exact, strict=True)]).norm()
    assert error < 0.1 * size


def test_lattices_without_classes_are_refused():
    with pytest.raises(ValueError, match=r"multiples of 4, not on \[6, 4\]"):
        PseudofermionFlow(16, Lattice((6, 4), 3))
