"""Eigenangles.

Oracles: torch.linalg.eigvals, angles from which matrices are made, finite differences.
"""

import math

import pytest
import torch
from torch.testing import assert_close

from kernels.contract import Call
from kernels.su3.family import C_FIRST, MatrixContract, with_gradient
from kernels.su3.matrices import (
    COLOURS,
    TURN,
    draw_unitary,
    draw_with_angles,
    join_centre,
    make_close_angles,
    turn,
)
from pipeline_kernels.su3 import eigenangles
from pipeline_kernels.su3.angles import reference

# In units of pi, descending, of sum zero; the last of each is at a wall of the canonical cell.
CHOSEN = {
    2: [[0.3, -0.3], [0.999, -0.999], [1, -1]],
    3: [[0.7, 0.1, -0.8], [0.9, 0.2, -1.1], [1.2, -0.5, -0.7], [0.6, 0.6, -1.2], [1, 0, -1]],
}
ANGLES = [
    angles
    for N in COLOURS
    for chosen in [math.pi * torch.tensor(CHOSEN[N], dtype=torch.float64)]
    for angles in (
        chosen,
        *(scale * chosen[:1] for scale in (1e-2, 1e-6, 1e-10)),  # near the centre
        *(make_close_angles(N, gap) for gap in (1e-2, 1e-6, 1e-10, 1e-15, 0)),
    )
]


class TestAngles(MatrixContract):
    folder = "su3/angles"
    refused = [
        (0, lambda U: U.real, "expected one dtype"),
        (0, lambda _: torch.eye(4, dtype=torch.complex128), "N = 2 or 3"),
        (0, lambda U: U[0, 0], "N = 2 or 3"),
    ]

    def draw(self, generator, n, n_colours):
        expected = with_gradient(reference.eigenangles, reference.angles_gradient)
        return Call(eigenangles, expected, [draw_unitary(n, n_colours, generator.initial_seed())])


@pytest.mark.parametrize("n_colours", COLOURS)
def test_equal_those_of_torch_in_the_canonical_cell(implementation, n_colours):
    U = draw_unitary(4003, n_colours)
    angles, theirs = eigenangles(U), torch.linalg.eigvals(U).angle().sort(-1).values
    assert angles.dtype == torch.float64
    reduced = (torch.remainder(angles + math.pi, TURN) - math.pi).sort(-1).values
    assert_close(reduced, theirs, rtol=0, atol=1e-14)
    assert (angles.diff(dim=-1) <= 0).all()
    assert (angles[:, 0] - angles[:, -1] <= TURN).all()
    assert_close(angles.sum(-1), torch.zeros(4003).double(), rtol=0, atol=1e-14)


@pytest.mark.parametrize("angles", ANGLES)
def test_are_those_the_matrix_was_made_with(implementation, angles):
    """However close they are: none of their digits is lost."""
    assert_close(eigenangles(draw_with_angles(angles)), angles, rtol=0, atol=2e-14)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("n_colours", COLOURS)
def test_equal_angles_give_numbers(implementation, n_colours, dtype):
    """At the centre of the group and at walls: values and gradients, of second order too."""
    walls = draw_with_angles(make_close_angles(n_colours, 0))
    U = join_centre(walls).to(dtype).requires_grad_()
    angles = eigenangles(U)
    (gradient,) = torch.autograd.grad(angles[:, 0].sum(), U, create_graph=True)
    assert angles.isfinite().all()
    assert (gradient.abs() < 10).all()
    assert_close(angles[0], torch.zeros(n_colours).double(), rtol=0, atol=1e-6)
    (second,) = torch.autograd.grad(gradient.abs().sum(), U)
    assert second.isfinite().all()


@pytest.mark.slow
@C_FIRST
@pytest.mark.parametrize("gap", [1e-6, 0.4])
@pytest.mark.parametrize("n_colours", COLOURS)
def test_derivatives_of_both_orders(implementation, n_colours, gap):
    """Of second order they are as large as one over the gap; steps are a thousandth of it."""
    U = draw_with_angles(make_close_angles(n_colours, gap)[:2], seed=3)
    x = torch.zeros(2, n_colours**2 - 1).double().requires_grad_()

    def function(x):
        return eigenangles(turn(U, x))

    step, limit = min(1e-6, gap / 1000), 1e-5 / gap
    assert torch.autograd.gradcheck(function, x, eps=step, atol=1e-5, rtol=1e-4)
    assert torch.autograd.gradgradcheck(function, x, eps=step, atol=limit, rtol=1e-4)


@pytest.mark.parametrize("n_colours", COLOURS)
def test_gradient_is_tangent(implementation, n_colours):
    U = draw_unitary(777, n_colours).requires_grad_()
    weights = torch.randn(777, n_colours, generator=torch.manual_seed(1)).double()
    (gradient,) = torch.autograd.grad(eigenangles(U), U, weights)
    along = U.mH @ gradient
    assert_close(along, -along.mH, rtol=0, atol=1e-12)
