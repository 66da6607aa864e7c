"""The residual step, beyond the requirements of all maps in `test_maps.py`.

Oracles: the step that gradient descent of the Wilson action takes, torch's gradcheck.
"""

import pytest
import torch
from hypothesis import strategies as st
from torch.testing import assert_close

from kernels.contract import Call
from kernels.su3.family import MatrixContract, draw_step, with_gradient
from kernels.su3.matrices import COLOURS
from pipeline_kernels.su3 import exponential, residual_step
from pipeline_kernels.su3.residual import reference


class TestResidual(MatrixContract):
    folder = "su3/residual"
    untraced = ("_gradient",)
    tolerances = {torch.float64: 1e-10, torch.float32: 1e-4}
    options = {**MatrixContract.options, "n": [7], "n_paths": [3, 1], "inverse": [False, True]}
    few = {"n": 1, "n_colours": 2}
    many = {"n": 17}
    random = {"n": st.integers(0, 9), "n_paths": st.integers(1, 20)}
    refused = [
        (0, lambda U: U.real, "U: expected one dtype"),
        (0, lambda U: U[0], r"U: expected \(n, N, N\)"),
        (2, lambda weights: weights[:, 0], r"weights: expected \(\d+, K\)"),
        (2, lambda weights: weights[:, 1:], "paths: expected"),
        (1, lambda paths: paths.to(torch.complex64), "complex128 on cpu"),
        (2, lambda weights: weights.float(), "weights: expected .* of torch.float64"),
    ]

    def draw(self, generator, n, n_colours, n_paths, inverse):
        formula = reference.residual_step, reference.residual_gradient
        expected = with_gradient(*formula, keep_result=True)
        inputs = draw_step(n, n_colours, n_paths, generator.initial_seed())
        return Call(residual_step, expected, inputs, [inverse])


@pytest.mark.parametrize("n_colours", COLOURS)
def test_a_step_is_along_the_gradient(implementation, n_colours):
    """Oracle: torch's autograd of Re tr U Sigma^dagger, which a step makes smaller."""
    U, paths, weights = draw_step(40, n_colours)
    x = torch.zeros(40, n_colours**2 - 1, dtype=torch.float64, requires_grad=True)
    T = reference.make_basis(n_colours, torch.device("cpu"))
    turned = torch.matrix_exp(torch.einsum("na,aij->nij", x.to(T.dtype), T)) @ U
    sigma = (weights[..., None, None] * paths).sum(1)
    (slope,) = torch.autograd.grad((turned * sigma.conj()).sum().real, x)
    # Re tr T U S^dagger = - Re tr T^dagger U S^dagger
    g = torch.einsum("na,aij->nij", -slope.to(T.dtype), T)
    moved, _ = residual_step(U, paths, weights)
    assert_close(moved, torch.matrix_exp(g) @ U, rtol=0, atol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("n_colours", COLOURS)
def test_derivatives_at_special_links(implementation, n_colours):
    """At U = S = 1, where g vanishes and all eigenvalues are equal: by torch's gradcheck."""
    T = reference.make_basis(n_colours, torch.device("cpu"))
    paths = torch.eye(n_colours, dtype=torch.complex128)[None, None]

    def function(x, weights):
        U = exponential(torch.einsum("na,aij->nij", x.to(T.dtype), T))
        moved, log_det = residual_step(U, paths, weights)
        return torch.view_as_real(moved), log_det

    x = torch.zeros(1, len(T)).double().requires_grad_()
    weights = torch.full((1, 1), 0.5).double().requires_grad_()
    assert torch.autograd.gradcheck(function, (x, weights))
