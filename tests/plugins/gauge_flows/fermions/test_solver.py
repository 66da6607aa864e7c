"""Solutions of Dirac's equation.

Oracles: the residual itself, linearity, torch.linalg.solve, the propagator of free quarks in
momentum space and its dispersion (Gattringer and Lang, Quantum Chromodynamics on the Lattice,
section 5.1).
"""

from __future__ import annotations

import math

import pytest
import torch
from torch.testing import assert_close

from pipeline_gauge_flows.fermions.determinant import build_matrix
from pipeline_gauge_flows.fermions.solver import DiracSolver
from pipeline_gauge_flows.lattice import Lattice, draw_hot, make_cold
from pipeline_kernels.dirac import DiracOperator
from pipeline_kernels.dirac.reference import make_gammas
from plugins.gauge_flows.small import make_generator

MASSES = {"kappa": 0.12, "two_kappa_mu": 0.1}


def draw_spinors(lattice: Lattice, batch: int, n_rhs: int, *, halved: bool) -> torch.Tensor:
    volume = lattice.volume // (2 if halved else 1)
    shape = batch, n_rhs, volume, lattice.dimension, lattice.n_colours
    return torch.randn(shape, generator=make_generator(1), dtype=torch.complex128)


def norm(psi: torch.Tensor) -> torch.Tensor:
    return psi.abs().square().flatten(2).sum(-1).sqrt()


@pytest.mark.parametrize("mixed", [True, False])
@pytest.mark.parametrize(
    ("extents", "n_colours", "batch", "n_rhs"),
    [((4, 4, 4, 4), 3, 1, 1), ((4, 4), 3, 5, 1), ((8, 4), 2, 1, 5), ((2, 4, 2, 2), 2, 3, 2)],
)
def test_solutions_have_the_residual_that_is_asked_for(mixed, extents, n_colours, batch, n_rhs):
    lattice = Lattice(extents, n_colours)
    operator = DiracOperator(draw_hot(lattice, batch, make_generator(0)), extents, **MASSES)
    solver = DiracSolver(operator, 1e-11, mixed=mixed)
    b = draw_spinors(lattice, batch, n_rhs, halved=True)
    b[0, 0] *= 1e3
    solution = solver.solve_normal(b)
    image = operator.apply_even_odd(operator.apply_even_odd(solution.spinors), adjoint=True)
    residual = norm(image - b) / norm(b)
    assert (residual <= 1e-11).all()
    assert_close(solution.residual, residual, rtol=0.1, atol=1e-13)
    assert 5 < solution.n_iterations < 500
    for adjoint in (False, True):
        x = solver.solve_even_odd(b, adjoint=adjoint).spinors
        assert (norm(operator.apply_even_odd(x, adjoint=adjoint) - b) < 1e-9 * norm(b)).all()
    eta = draw_spinors(lattice, batch, n_rhs, halved=False)
    assert (norm(operator.apply(solver.solve(eta).spinors) - eta) < 1e-9 * norm(eta)).all()


def test_solutions_are_those_of_torch_and_of_plain_iterations():
    lattice = Lattice((4, 4), 3)
    operator = DiracOperator(draw_hot(lattice, 2, make_generator(0)), (4, 4), **MASSES)
    b = draw_spinors(lattice, 2, 3, halved=True)
    expected = torch.linalg.solve(build_matrix(operator), b.flatten(2).mT).mT
    solution = DiracSolver(operator, 1e-12, mixed=False).solve_even_odd(b)
    assert_close(solution.spinors.flatten(2), expected, rtol=0, atol=1e-9)
    operator.packed = None  # as on a GPU, or without C
    plain = DiracSolver(operator, 1e-12, mixed=False).solve_even_odd(b)
    assert_close(plain.spinors.flatten(2), expected, rtol=0, atol=1e-9)
    assert abs(plain.n_iterations - solution.n_iterations) <= 2


def test_fields_do_not_change_each_other():
    lattice = Lattice((4, 4), 2)
    links, b = draw_hot(lattice, 3, make_generator(0)), draw_spinors(lattice, 3, 2, halved=True)
    b[1, 0] = 0
    together = DiracSolver(DiracOperator(links, (4, 4), **MASSES)).solve_normal(b)
    assert torch.equal(together.spinors[1, 0], torch.zeros_like(b[1, 0]))
    for k in range(3):
        operator = DiracOperator(links[k : k + 1], (4, 4), **MASSES)
        alone = DiracSolver(operator).solve_normal(b[k : k + 1])
        assert_close(together.spinors[k : k + 1], alone.spinors, rtol=0, atol=1e-8)


def test_sizes_of_right_hand_sides_do_not_matter():
    lattice = Lattice((4, 4), 3)
    operator = DiracOperator(draw_hot(lattice, 1, make_generator(0)), (4, 4), **MASSES)
    solver, b = DiracSolver(operator, 1e-12), draw_spinors(lattice, 1, 1, halved=True)
    expected = solver.solve_normal(b).spinors
    for size in (2.0**-100, 2.0**100):  # squares that single precision does not hold
        assert torch.equal(solver.solve_normal(size * b).spinors / size, expected)


@pytest.mark.parametrize("extents", [(16, 8), (8, 4, 4, 4)])
def test_propagators_of_free_quarks(extents):
    """M(p)^-1 = (A - 2 i kappa sum_mu gamma_mu sin p_mu - i mu~ gamma5) / B.

    A = 1 - 2 kappa sum_mu cos p_mu, B = A^2 + 4 kappa^2 sum_mu sin^2 p_mu + mu~^2.
    """
    lattice = Lattice(extents, 2)
    D, V = lattice.dimension, lattice.volume
    operator = DiracOperator(make_cold(lattice), extents, **MASSES)
    eta = torch.zeros(1, D, V, D, 2, dtype=torch.complex128)
    eta[0, range(D), 0, range(D), 0] = 1  # a point source for each spin
    psi = DiracSolver(operator, 1e-13).solve(eta).spinors
    momenta = [
        2 * math.pi * (torch.arange(n).double() + (0.5 if mu == 0 else 0)) / n
        for mu, n in enumerate(extents)
    ]
    p = torch.cartesian_prod(*momenta)
    gammas, gamma5 = make_gammas(D, p.device)
    A = 1 - 2 * operator.kappa * p.cos().sum(1)
    mu, one = operator.two_kappa_mu, torch.eye(D)
    numerator = A[:, None, None] * one - 1j * mu * torch.diag(gamma5)
    numerator = numerator - 2j * operator.kappa * torch.einsum("pm,mst->pst", p.sin() + 0j, gammas)
    square = A**2 + 4 * operator.kappa**2 * p.sin().square().sum(1) + mu**2
    waves = torch.polar(torch.ones(V, V).double(), lattice.coordinates.double() @ p.mT)
    expected = torch.einsum("xp,pst->xst", waves, numerator / square[:, None, None]) / V
    assert_close(psi[0, :, :, :, 0].permute(1, 2, 0), expected, rtol=0, atol=1e-10)
    assert psi[..., 1].abs().max() < 1e-12
    pion = psi.abs().square().sum((0, 1, 3, 4)).reshape(extents).flatten(1).sum(1)
    exact = expected.abs().square().sum((1, 2)).reshape(extents).flatten(1).sum(1)
    assert_close(pion, exact, rtol=1e-10, atol=0)


def test_what_cannot_be_solved_is_refused():
    lattice = Lattice((4, 4), 3)
    links, b = draw_hot(lattice, 1, make_generator(0)), draw_spinors(lattice, 1, 1, halved=True)
    operator = DiracOperator(links, (4, 4), **MASSES)
    with pytest.raises(ValueError, match=r"after 3 iterations, not 1.0e-10; raise the tolerance"):
        DiracSolver(operator, max_iterations=3).solve_normal(b)
    with pytest.raises(ValueError, match="give links in double precision"):
        DiracSolver(operator.convert(torch.complex64), 1e-12).solve_normal(b.to(torch.complex64))
    b[0, 0, 0] = torch.nan
    with pytest.raises(ValueError, match="conjugate gradients"):
        DiracSolver(operator).solve_normal(b)
