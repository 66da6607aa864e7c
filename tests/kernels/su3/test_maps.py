"""Requirements of both maps of links: the spectral map and the residual step.

Oracles: finite-difference Jacobians on the group, invariance of the Haar measure, exact inversion,
equivariance, torch's gradcheck.
"""

from typing import NamedTuple

import pytest
import torch
from torch.testing import assert_close

from kernels.su3.family import draw_map, draw_step
from kernels.su3.matrices import COLOURS, check_unitary, draw_unitary, measure_jacobian, turn
from pipeline_kernels.su3 import residual_step, spectral_map
from tiers import cover_pairs

DIRECTIONS = pytest.mark.parametrize("inverse", [False, True])


class Map(NamedTuple):
    """A map `(links, others, inverse) -> (links, log det)`.

    Attributes:
        move: the map.
        draw: draws links and others, the last of which change nothing where they are zero.
        turn: gives others for links V U W.
        conjugates: whether W is V^dagger.
        limit: of the error of its inverse.
        unchanged: what zero changes.
    """

    move: object
    draw: object
    turn: object
    conjugates: bool
    limit: float
    unchanged: float


def move_angles(U, parameters, inverse=False):
    W, log_det = spectral_map(U, parameters, inverse)
    return W @ U, log_det


def keep_parameters(left, right, parameters):
    return (parameters,)


def turn_paths(left, right, paths, weights):
    return left[:, None] @ paths @ right[:, None], weights


MAPS = {
    "spectral": Map(move_angles, draw_map, keep_parameters, True, 1e-10, 0),
    "residual": Map(residual_step, draw_step, turn_paths, False, 1e-12, 1e-15),
}


OPTIONS = pytest.mark.parametrize(
    ("implementation", "name", "n_colours", "inverse"),
    cover_pairs(["C", "reference"], MAPS, COLOURS, [False, True]),
    indirect=["implementation"],
    scope="module",
)


@pytest.fixture(scope="module", params=MAPS)
def a_map(request):
    return MAPS[request.param]


@pytest.fixture(scope="module", params=COLOURS)
def case(request, a_map):
    """The map, links and others of many."""
    return a_map, *a_map.draw(2003, request.param)


@DIRECTIONS
def test_zero_changes_nothing(implementation, case, inverse):
    a_map, U, *others = case
    for dtype in (torch.complex64, torch.complex128):
        kept = [x.to(dtype) if x.is_complex() else x for x in others[:-1]]
        moved, log_det = a_map.move(U.to(dtype), *kept, 0 * others[-1], inverse)
        assert_close(moved, U.to(dtype), rtol=0, atol=a_map.unchanged)
        assert (log_det == 0).all()


@DIRECTIONS
def test_inverse_undoes(implementation, case, inverse):
    a_map, U, *others = case
    moved, log_det = a_map.move(U, *others, inverse)
    back, other = a_map.move(moved, *others, not inverse)
    check_unitary(moved, 1e-13)
    assert_close(back, U, rtol=0, atol=a_map.limit)
    assert_close(other, -log_det, rtol=0, atol=10 * a_map.limit)
    assert float(log_det.abs().max()) > 1


@pytest.mark.slow
@DIRECTIONS
def test_equivariant_under_gauge_transformations(implementation, case, inverse):
    a_map, U, *others = case
    left, right = (draw_unitary(len(U), U.shape[1], seed) for seed in (7, 8))
    right = left.mH if a_map.conjugates else right
    moved, log_det = a_map.move(U, *others, inverse)
    turned, same = a_map.move(left @ U @ right, *a_map.turn(left, right, *others), inverse)
    assert_close(turned, left @ moved @ right, rtol=0, atol=1e-11)
    assert_close(same, log_det, rtol=0, atol=1e-10)


@DIRECTIONS
def test_determinant_is_that_of_the_group(implementation, case, inverse):
    a_map, *inputs = case
    U, *others = (x[:20] for x in inputs)
    moved, log_det = a_map.move(U, *others, inverse)
    jacobian = measure_jacobian(lambda V: a_map.move(V, *others, inverse)[0], U, moved)
    sign, value = torch.linalg.slogdet(jacobian)
    assert_close(sign, torch.ones_like(sign))
    assert_close(value, log_det, rtol=0, atol=1e-6)


@pytest.mark.slow
@OPTIONS
def test_determinant_preserves_the_haar_measure(implementation, name, n_colours, inverse):
    """Oracle: int dU det f(U') = int dU f(U); the characters' integrals are 0 and 1."""
    a_map, n = MAPS[name], 20_000
    _, *others = (x.expand(n, *x.shape[1:]) for x in a_map.draw(1, n_colours, seed=5))
    others[-1] = 0.4 * others[-1]
    moved, log_det = a_map.move(draw_unitary(n, n_colours, seed=5), *others, inverse)
    character = moved.diagonal(dim1=-2, dim2=-1).sum(-1)
    weight = log_det.exp()
    for values, expected in (
        (weight, 1.0),
        (weight * character.abs().square(), 1.0),
        (weight * character.real, 0.0),
    ):
        error = float(values.std()) / n**0.5
        assert error < 0.03
        assert abs(float(values.mean()) - expected) < 4 * error


@pytest.mark.slow
@OPTIONS
def test_first_and_second_derivatives(implementation, name, n_colours, inverse):
    """By links along the group, and by all others."""
    a_map = MAPS[name]
    U, *others = a_map.draw(1, n_colours, 2)
    x = torch.zeros(1, n_colours**2 - 1).double()

    def function(x, *others):
        moved, log_det = a_map.move(turn(U, x), *others, inverse)
        return torch.view_as_real(moved), log_det

    inputs = [x.requires_grad_() for x in (x, *others)]
    assert torch.autograd.gradcheck(function, inputs)
    assert torch.autograd.gradgradcheck(function, inputs, atol=1e-4, fast_mode=True)
