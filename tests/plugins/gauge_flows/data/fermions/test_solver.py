"""Solutions of Dirac's equation.

Oracles: the residual itself, linearity, torch.linalg.solve.
"""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from pipeline_gauge_flows.data.fermions import solver as solver_module
from pipeline_gauge_flows.data.fermions.determinant import build_matrix
from pipeline_gauge_flows.data.fermions.solver import DiracSolver
from pipeline_gauge_flows.data.lattice import Lattice, draw_hot
from pipeline_kernels.dirac import DiracOperator
from plugins.gauge_flows.small import make_generator

MASSES = {"kappa": 0.12, "two_kappa_mu": 0.1}


def draw_spinors(lattice: Lattice, batch: int, n_rhs: int, *, halved: bool) -> torch.Tensor:
    volume = lattice.volume // (2 if halved else 1)
    shape = batch, n_rhs, volume, lattice.dimension, lattice.n_colours
    return torch.randn(shape, generator=make_generator(1), dtype=torch.complex128)


def norm(psi: torch.Tensor) -> torch.Tensor:
    return psi.abs().square().flatten(2).sum(-1).sqrt()


@pytest.mark.parametrize(
    ("extents", "n_colours", "batch", "n_rhs"),
    [((4, 4, 4, 4), 3, 1, 1), ((4, 4), 3, 5, 1), ((8, 4), 2, 1, 5), ((2, 4, 2, 2), 2, 3, 2)],
)
def test_solutions_have_the_residual_that_is_asked_for(extents, n_colours, batch, n_rhs):
    lattice = Lattice(extents, n_colours)
    operator = DiracOperator(draw_hot(lattice, batch, make_generator(0)), extents, **MASSES)
    solver = DiracSolver(operator, 1e-11)
    b = draw_spinors(lattice, batch, n_rhs, halved=True)
    b[0, 0] *= 1e3
    x = solver.solve_normal(b)
    image = operator.apply_even_odd(operator.apply_even_odd(x), adjoint=True)
    assert (norm(image - b) <= 1e-11 * norm(b)).all()
    for adjoint in (False, True):
        x = solver.solve_even_odd(b, adjoint=adjoint)
        assert (norm(operator.apply_even_odd(x, adjoint=adjoint) - b) < 1e-9 * norm(b)).all()
    eta = draw_spinors(lattice, batch, n_rhs, halved=False)
    assert (norm(operator.apply(solver.solve(eta)) - eta) < 1e-9 * norm(eta)).all()


def test_solutions_are_those_of_torch_and_of_plain_iterations():
    lattice = Lattice((4, 4), 3)
    operator = DiracOperator(draw_hot(lattice, 2, make_generator(0)), (4, 4), **MASSES)
    b = draw_spinors(lattice, 2, 3, halved=True)
    expected = torch.linalg.solve(build_matrix(operator), b.flatten(2).mT).mT
    solution = DiracSolver(operator, 1e-12).solve_even_odd(b)
    assert_close(solution.flatten(2), expected, rtol=0, atol=1e-9)
    operator.packed = None  # as on a GPU, or without C
    plain = DiracSolver(operator, 1e-12).solve_even_odd(b)
    assert_close(plain.flatten(2), expected, rtol=0, atol=1e-9)


def test_sizes_of_right_hand_sides_do_not_matter():
    lattice = Lattice((4, 4), 3)
    operator = DiracOperator(draw_hot(lattice, 1, make_generator(0)), (4, 4), **MASSES)
    solver, b = DiracSolver(operator, 1e-12), draw_spinors(lattice, 1, 1, halved=True)
    expected = solver.solve_normal(b)
    for size in (2.0**-100, 2.0**100):  # squares that single precision does not hold
        assert torch.equal(solver.solve_normal(size * b) / size, expected)


def test_what_cannot_be_solved_is_refused(monkeypatch):
    lattice = Lattice((4, 4), 3)
    links, b = draw_hot(lattice, 1, make_generator(0)), draw_spinors(lattice, 1, 1, halved=True)
    operator = DiracOperator(links, (4, 4), **MASSES)
    with monkeypatch.context() as patch:
        patch.setattr(solver_module, "_MOST_ITERATIONS", 3)
        with pytest.raises(ValueError, match=r"after 3 iterations, not 1.0e-10; raise the"):
            DiracSolver(operator).solve_normal(b)
    with pytest.raises(ValueError, match="give links in double precision"):
        DiracSolver(operator.convert(torch.complex64), 1e-12).solve_normal(b.to(torch.complex64))
    b[0, 0, 0] = torch.nan
    with pytest.raises(ValueError, match="conjugate gradients"):
        DiracSolver(operator).solve_normal(b)
