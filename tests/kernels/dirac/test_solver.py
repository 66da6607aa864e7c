"""Conjugate gradients in one precision, and residuals.

Oracles: the operator applied twice, torch.linalg.solve, that conjugate gradients end after as many
steps as a vector has numbers (Hestenes and Stiefel, J. Res. NBS 49, 409 (1952)).
"""

import pytest
import torch
from torch.testing import assert_close

from kernels.dirac.dirac_case import draw_links, draw_spinors
from pipeline_kernels.dirac import DiracOperator, NormalSolver, compute_residual

pytestmark = pytest.mark.usefixtures("implementation")
SHAPES = [((4, 4, 4, 4), 3, 1, 1), ((4, 4), 3, 1, 5), ((2, 6), 2, 9, 2), ((4, 2, 2, 4), 2, 3, 3)]
DTYPES = {torch.complex64: 2e-6, torch.complex128: 1e-14}


def make_case(extents, n_colours, batch, n_rhs, dtype=torch.complex128):
    operator = DiracOperator(draw_links(extents, n_colours, batch, dtype), extents, 0.15, 0.2)
    fields = [
        draw_spinors(extents, n_colours, batch, n_rhs, dtype, seed, halved=True) for seed in (1, 2)
    ]
    return operator, *fields


def apply_normal(operator, x):
    return operator.apply_even_odd(operator.apply_even_odd(x), adjoint=True)


def square(x):
    return x.abs().double().square().flatten(2).sum(-1)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_residuals_are_those_of_the_operator(shape, dtype):
    operator, x, b = make_case(*shape, dtype)
    expected = b - apply_normal(operator, x)
    residual, norm = compute_residual(operator, x, b)
    limits = {"rtol": DTYPES[dtype], "atol": 10 * DTYPES[dtype]}
    assert_close(residual, expected, **limits)
    assert_close(norm, square(expected), rtol=DTYPES[dtype], atol=0)


def test_iterations_end_after_as_many_steps_as_a_vector_has_numbers():
    operator, _, b = make_case((2, 2), 2, 3, 2)
    n = b[0, 0].numel()
    solver = NormalSolver(operator, b.shape)
    x = solver.iterate(b, torch.zeros(3, 2).double(), n)
    assert solver.n_iterations == n
    units = torch.eye(n, dtype=b.dtype).reshape(1, n, *b.shape[2:]).expand(3, -1, -1, -1, -1)
    matrix = apply_normal(operator, units).flatten(2).mT
    assert_close(x.flatten(2).mT, torch.linalg.solve(matrix, b.flatten(2).mT), rtol=0, atol=1e-9)


def test_fields_stop_at_goals_of_their_own():
    operator, _, b = make_case((4, 4), 3, 2, 3)
    goal = square(b) * torch.tensor([[1e-2, 1e-8, torch.inf], [2.0, 1e-4, 1e-12]]).double()
    solver = NormalSolver(operator, b.shape)
    x = solver.iterate(b, goal, 1000)
    _, norm = compute_residual(operator, x, b)
    assert (norm <= goal * 1.001).all()
    assert (norm[0, :2] > 1e-5 * goal[0, :2]).all()  # it has not gone on with the others
    assert torch.equal(x[0, 2], torch.zeros_like(x[0, 2]))
    assert torch.equal(x[1, 0], torch.zeros_like(x[1, 0]))


@pytest.mark.slow
def test_a_search_goes_on_from_where_it_was():
    operator, _, b = make_case((4, 4, 2, 2), 2, 1, 2)
    goal = torch.zeros(1, 2).double()
    whole, parts = (NormalSolver(operator, b.shape) for _ in range(2))
    expected = whole.iterate(b, goal, 12)
    first = parts.iterate(b, goal, 5)
    residual, _ = compute_residual(operator, first, b)
    x = first + parts.iterate(residual, goal, 7)
    assert parts.n_iterations == 12
    assert_close(x, expected, rtol=1e-10, atol=1e-12)


def test_what_does_not_fit_is_refused():
    operator, x, b = make_case((4, 4), 3, 1, 2)
    solver, goal = NormalSolver(operator, b.shape), torch.zeros(1, 2).double()
    with pytest.raises(ValueError, match=r"x: expected \(1, 2, 8, 2, 3\) as b"):
        compute_residual(operator, x[:, :1], b)
    with pytest.raises(ValueError, match=r"b: expected .* of torch\.complex128"):
        compute_residual(operator, x, b.to(torch.complex64))
    with pytest.raises(ValueError, match=r"residual: expected \(1, 2, 8, 2, 3\) of"):
        solver.iterate(b[:, :1], goal, 3)
    with pytest.raises(ValueError, match=r"goal: expected \(1, 2\) of torch\.float64"):
        solver.iterate(b, goal.float(), 3)
