"""The spectral map, beyond the requirements of all maps in `test_maps.py`.

Oracles: exact inversion, unitarity, finite differences.
"""

import pytest
import torch
from hypothesis import strategies as st
from torch.testing import assert_close

from kernels.contract import Call
from kernels.su3.family import C_FIRST, MatrixContract, draw_map
from kernels.su3.matrices import (
    COLOURS,
    TURN,
    check_unitary,
    draw_real,
    draw_unitary,
    draw_with_angles,
    join_centre,
    make_close_angles,
    turn,
)
from pipeline_kernels.su3 import spectral_map
from pipeline_kernels.su3.spectral import reference
from pipeline_kernels.su3.spectral.decomposition import decompose

DIRECTIONS = pytest.mark.parametrize("inverse", [False, True])


def draw_near_walls(n_colours, gap, bins=8):
    """Draw matrices with two angles so close, at several walls, and parameters."""
    angles = make_close_angles(n_colours, gap)
    U = draw_with_angles(angles[:: 5 if n_colours == 3 else 1])
    return U, draw_real(len(U), n_colours - 1, 3 * bins + 1)


class TestSpectral(MatrixContract):
    folder = "su3/spectral"
    untraced = ("_gradient",)
    # Single precision matrices are no unitary ones in double, and each treats that in its way.
    tolerances = {torch.float64: 1e-9, torch.float32: 2e-3}
    options = {**MatrixContract.options, "bins": [3, 8], "inverse": [False, True]}
    few = {"n": 1, "n_colours": 2, "bins": 2}
    random = {**MatrixContract.random, "bins": st.integers(1, 20)}
    refused = [
        (0, lambda L: L.real, "L: expected one dtype"),
        (0, lambda L: L[0], r"expected \(n, N, N\)"),
        (1, lambda parameters: parameters[:, 1:], "3 K . 1"),
        (1, lambda parameters: parameters[..., 1:], "3 K . 1"),
        (1, lambda parameters: parameters.float(), "expected .* of torch.float64"),
    ]

    def draw(self, generator, n, n_colours, bins, inverse):
        inputs = draw_map(n, n_colours, bins, generator.initial_seed())
        return Call(spectral_map, reference.spectral_map, inputs, [inverse])


@DIRECTIONS
@pytest.mark.parametrize("gap", [1e-2, 1e-6, 1e-10, 1e-12, 0])
@pytest.mark.parametrize("n_colours", COLOURS)
def test_keeps_eigenvectors_and_is_undone_near_walls(implementation, n_colours, gap, inverse):
    U, parameters = draw_near_walls(n_colours, gap)
    W, log_det = spectral_map(U, parameters, inverse)
    check_unitary(W)
    assert_close(W @ U, U @ W, rtol=0, atol=1e-14)
    if gap >= 1e-10:
        back, other = spectral_map(W @ U, parameters, not inverse)
        assert_close(back @ W @ U, U, rtol=0, atol=1e-10)
        assert_close(other, -log_det, rtol=0, atol=1e-5)  # the gap of 1e-10 has six digits


@pytest.mark.parametrize("n_colours", COLOURS)
def test_angles_move_by_the_splines(implementation, n_colours):
    """Box coordinates written out, and their order."""
    U, parameters = draw_unitary(300, n_colours), draw_real(1, n_colours - 1, 16)
    W, _ = spectral_map(U, parameters.expand(300, -1, -1))

    def coordinate(V):
        angles, _ = decompose(V)
        return (angles[:, 0] - angles[:, -1]) / TURN

    before, after = coordinate(U), coordinate(W @ U)
    order = before.argsort()
    assert (after[order].diff() > 0).all()  # one increasing function for all
    inner = (before > 0.3) & (before < 0.7)
    assert ((after - before)[inner].abs() > 1e-3).any()


@pytest.mark.slow
@C_FIRST
@DIRECTIONS
@pytest.mark.parametrize("n_colours", COLOURS)
def test_derivatives_near_equal_angles(implementation, n_colours, inverse):
    """Of second order they may be as large as one over the gap; steps are a thousandth of it."""
    U, parameters = draw_near_walls(n_colours, 1e-6, 2)
    x = torch.zeros(len(U), n_colours**2 - 1).double().requires_grad_()

    def function(x):
        W, log_det = spectral_map(turn(U, x), parameters, inverse)
        return torch.view_as_real(W), log_det

    assert torch.autograd.gradcheck(function, x, eps=1e-9, atol=1e-4, rtol=1e-4)
    assert torch.autograd.gradgradcheck(function, x, eps=1e-9, atol=30, rtol=1e-3, fast_mode=True)


@DIRECTIONS
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("n_colours", COLOURS)
def test_equal_angles_give_numbers(implementation, n_colours, dtype, inverse):
    """At the centre of the group and at walls; the derivative is one of those around."""
    walls, _ = draw_near_walls(n_colours, 0)
    U = join_centre(walls).to(dtype).requires_grad_()
    parameters = draw_real(len(U), n_colours - 1, 25).requires_grad_()
    W, log_det = spectral_map(U, parameters, inverse)
    total = W.real.sum() + log_det.sum()
    by_U, by_parameters = torch.autograd.grad(total, (U, parameters), create_graph=True)
    for result in (W, log_det, by_U, by_parameters):
        assert result.isfinite().all()
    at_the_centre = slice(n_colours)
    assert_close(W[at_the_centre].detach(), torch.eye(n_colours).to(W).expand(n_colours, -1, -1))
    assert (by_U[at_the_centre].abs() < 100).all()
    assert (by_U[-len(walls) :].abs() < 1000).all()
    for second in torch.autograd.grad(by_U.abs().sum() + by_parameters.sum(), (U, parameters)):
        assert second.isfinite().all()
