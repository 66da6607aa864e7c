"""Eigenangles.

Oracles: torch.linalg.eigvals, angles from which matrices are made, finite differences.
"""

import math

import pytest
import torch
from torch.library import opcheck
from torch.testing import assert_close

from pipeline_kernels.su3 import eigenangles
from pipeline_kernels.su3.angles import reference
from pipeline_kernels.su3.angles.op import _angles, _gradient

COLOURS = [2, 3]
TURN = 2 * math.pi
# In units of pi, descending, of sum zero; the last of each is at a wall of the canonical cell.
CHOSEN = {
    2: [[0.3, -0.3], [0.999, -0.999], [1, -1]],
    3: [[0.7, 0.1, -0.8], [0.9, 0.2, -1.1], [1.2, -0.5, -0.7], [0.6, 0.6, -1.2], [1, 0, -1]],
}


def close_pairs(n_colours, gap):
    """Angles with two neighbours on the circle that are so close, at every wall of the cell."""
    half = gap / 2
    if n_colours == 2:
        pairs = [[half, -half], [math.pi - half, half - math.pi]]
        return torch.tensor(pairs, dtype=torch.float64)
    t = torch.tensor([0.9, -0.2, 1.8, -1.1, 0.4, math.pi - 0.01], dtype=torch.float64)
    above = torch.stack([t.abs(), half - t.abs() / 2, -half - t.abs() / 2], -1)
    outside = torch.stack([math.pi - half - t / 2, t, half - math.pi - t / 2], -1)
    return torch.cat([above, -above.flip(-1), outside[:5]])


def reduce_angles(angles):
    return (torch.remainder(angles + math.pi, TURN) - math.pi).sort(-1).values


@pytest.mark.parametrize("n_colours", COLOURS)
def test_equal_those_of_torch(implementation, unitary, n_colours):
    U = unitary(4003, n_colours)
    angles, theirs = eigenangles(U), torch.linalg.eigvals(U).angle().sort(-1).values
    assert angles.dtype == torch.float64
    assert_close(reduce_angles(angles), theirs, rtol=0, atol=1e-14)


@pytest.mark.parametrize("n_colours", COLOURS)
def test_lie_in_the_canonical_cell(implementation, unitary, n_colours):
    angles = eigenangles(unitary(4003, n_colours))
    assert (angles.diff(dim=-1) <= 0).all()
    assert (angles[:, 0] - angles[:, -1] <= TURN).all()
    assert_close(angles.sum(-1), torch.zeros(4003).double(), rtol=0, atol=1e-14)


@pytest.mark.parametrize("n_colours", COLOURS)
def test_are_those_the_matrix_was_made_with(implementation, with_angles, n_colours):
    chosen = math.pi * torch.tensor(CHOSEN[n_colours], dtype=torch.float64)
    assert_close(eigenangles(with_angles(chosen)), chosen, rtol=0, atol=2e-14)


@pytest.mark.parametrize("gap", [1e-2, 1e-6, 1e-10, 1e-15, 0])
@pytest.mark.parametrize("n_colours", COLOURS)
def test_close_angles_keep_their_digits(implementation, with_angles, n_colours, gap):
    chosen = close_pairs(n_colours, gap)
    result = eigenangles(with_angles(chosen))
    assert_close(result, chosen, rtol=0, atol=1e-14)


@pytest.mark.parametrize("scale", [1e-2, 1e-6, 1e-10])
@pytest.mark.parametrize("n_colours", COLOURS)
def test_angles_near_the_centre(implementation, with_angles, n_colours, scale):
    chosen = scale * torch.tensor(CHOSEN[n_colours][:1], dtype=torch.float64)
    assert_close(eigenangles(with_angles(chosen)), chosen, rtol=0, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("n_colours", COLOURS)
def test_equal_angles_give_numbers(implementation, with_angles, n_colours, dtype):
    """At the centre of the group and at walls: values and gradients, of second order too."""
    phases = torch.polar(torch.ones(n_colours), TURN * torch.arange(n_colours) / n_colours)
    centre = phases[:, None, None] * torch.eye(n_colours)
    noise = 1e-7 * torch.randn(50, n_colours, n_colours, generator=torch.manual_seed(0))
    walls = with_angles(close_pairs(n_colours, 0))
    U = torch.cat([centre, centre[:1] + noise, walls]).to(dtype).requires_grad_()
    angles = eigenangles(U)
    (gradient,) = torch.autograd.grad(angles[:, 0].sum(), U, create_graph=True)
    assert angles.isfinite().all()
    assert (gradient.abs() < 10).all()
    assert_close(angles[0], torch.zeros(n_colours).double(), rtol=0, atol=1e-6)
    (second,) = torch.autograd.grad(gradient.abs().sum(), U)
    assert second.isfinite().all()


@pytest.mark.slow
@pytest.mark.parametrize("n_colours", COLOURS)
def test_first_and_second_derivatives(implementation, unitary, turned, n_colours):
    U, x = unitary(2, n_colours), torch.zeros(2, n_colours**2 - 1).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: eigenangles(turned(U, x)), x)
    assert torch.autograd.gradgradcheck(lambda x: eigenangles(turned(U, x)), x)


@pytest.mark.slow
@pytest.mark.parametrize("n_colours", COLOURS)
def test_derivatives_near_equal_angles(implementation, with_angles, turned, n_colours):
    """Of second order they are as large as one over the gap; steps are a thousandth of it."""
    U = with_angles(close_pairs(n_colours, 1e-6)[:2], seed=3)
    x = torch.zeros(2, n_colours**2 - 1).double().requires_grad_()

    def function(x):
        return eigenangles(turned(U, x))

    assert torch.autograd.gradcheck(function, x, eps=1e-9, atol=1e-5, rtol=1e-4)
    assert torch.autograd.gradgradcheck(function, x, eps=1e-9, atol=10, rtol=1e-4)


@pytest.mark.parametrize("n_colours", COLOURS)
def test_gradient_is_tangent_and_equals_the_reference(compiled_c, unitary, n_colours):
    U = unitary(777, n_colours)
    weights = torch.randn(777, n_colours, generator=torch.manual_seed(1)).double()
    result = _gradient(U, weights)
    along = U.mH @ result
    assert_close(along, -along.mH, rtol=0, atol=1e-12)
    assert_close(result, reference.angles_gradient(U, weights), rtol=0, atol=1e-12)


@pytest.mark.parametrize("n_colours", COLOURS)
def test_any_layout_and_threads(use_threads, compiled_c, unitary, n_colours):
    U = unitary(3000, n_colours)
    expected = eigenangles(U)
    with use_threads(2):
        assert torch.equal(
            eigenangles(U.reshape(3, 10, 100, n_colours, n_colours)).flatten(0, 2), expected
        )
        assert torch.equal(eigenangles(U.mT.contiguous().mT), expected)
        assert torch.equal(eigenangles(U.conj().resolve_conj().conj()), expected)
    assert eigenangles(U[:0]).shape == (0, n_colours)


@pytest.mark.parametrize("n_colours", COLOURS)
def test_single_precision(implementation, unitary, n_colours):
    U = unitary(1000, n_colours)
    assert_close(eigenangles(U.to(torch.complex64)), eigenangles(U), rtol=0, atol=1e-6)


@pytest.mark.slow
def test_operators_keep_the_rules_of_torch(implementation, unitary):
    U, weights = unitary(5, 3), torch.ones(5, 3).double()
    opcheck(_angles, (U.clone().requires_grad_(),))
    opcheck(_gradient, (U.clone().requires_grad_(), weights.requires_grad_()))


@pytest.mark.parametrize(
    ("U", "message"),
    [
        (torch.eye(3), "expected one dtype"),
        (torch.eye(4, dtype=torch.complex128), "N = 2 or 3"),
        (torch.ones(3, dtype=torch.complex64), "N = 2 or 3"),
    ],
)
def test_refuses_other_arguments(U, message):
    with pytest.raises(ValueError, match=message):
        eigenangles(U)
