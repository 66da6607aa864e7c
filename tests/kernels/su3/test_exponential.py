"""Exponential.

Oracles: scipy.linalg.expm, torch.linalg.matrix_exp and its derivative, finite differences.
"""

import pytest
import scipy.linalg
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

from kernels.contract import Call
from kernels.su3.family import C_FIRST, MatrixContract
from kernels.su3.matrices import COLOURS, check_unitary, draw_normal, draw_unitary
from pipeline_kernels.su3 import exponential
from pipeline_kernels.su3.exponential import reference as exponential_reference
from pipeline_kernels.su3.exponential.reference import project_to_algebra
from tiers import exhaustive

# Angles, the last of each closed by their sum: apart, near the cut, a pair, all close, none.
ANGLES = {
    2: [[0.7], [3.0], [1e-6], [0]],
    3: [[0.7, 0.1], [2.6, -0.2], [0.4, 0.4 - 1e-6], [1, 1], [1e-6, 0], [1e-6, 1e-6], [0, 0]],
}
FIRST = [[3.0], [0], [0.4, 0.4 - 1e-6], [1, 1]]
CASES = [
    pytest.param(angles, marks=() if angles in FIRST else exhaustive)
    for N in COLOURS
    for angles in ANGLES[N]
]


def build_algebra(angles, n):
    """Build elements of the algebra with chosen angles."""
    angles = torch.tensor(angles, dtype=torch.float64)
    angles = torch.cat([angles, -angles.sum()[None]]).expand(n, -1)
    V = draw_unitary(n, angles.shape[1], 7)
    return (V * (1j * angles)[:, None, :]) @ V.mH


def draw_algebra(scale, n_colours, seed=0):
    return project_to_algebra(scale * draw_normal(60, n_colours, n_colours, seed=seed))


class TestExponential(MatrixContract):
    folder = "su3/exponential"
    refused = [(0, lambda A: A.real, "A: expected")]

    def draw(self, generator, n, n_colours):
        """Draw matrices with more than a part in the algebra; the first have equal eigenvalues."""
        A = draw_normal(n, n_colours, n_colours, seed=generator.initial_seed())
        A[:4] = torch.diag_embed(1j * torch.tensor([1, 1, -2][:n_colours]).double())
        scales = torch.tensor([2, 0.4, 0, 1e-6]).repeat(n)[:n, None, None]
        return Call(exponential, exponential_reference.exponential, [scales * A])


@pytest.mark.parametrize("scale", [0, 1e-8, 0.1, 1, 5, 40])
@pytest.mark.parametrize("n_colours", COLOURS)
def test_exponential_is_that_of_scipy(implementation, n_colours, scale):
    A = draw_algebra(scale, n_colours)
    result, limit = exponential(A), 1e-14 * max(1, scale)
    assert_close(result, torch.from_numpy(scipy.linalg.expm(A.numpy())), rtol=0, atol=limit)
    check_unitary(result, limit)


@pytest.mark.slow
@C_FIRST
@pytest.mark.parametrize("angles", CASES)
def test_derivatives_of_both_orders(implementation, angles):
    A = build_algebra(angles, 1).requires_grad_()
    assert gradcheck(exponential, (A,))
    assert gradgradcheck(exponential, (A,), fast_mode=True)


@pytest.mark.parametrize("scale", [1, 3, 20])
@pytest.mark.parametrize("n_colours", COLOURS)
def test_derivative_of_large_matrices(implementation, n_colours, scale):
    A, G = draw_algebra(scale, n_colours, 1).requires_grad_(), draw_normal(60, n_colours, n_colours)
    (theirs,) = torch.autograd.grad(torch.linalg.matrix_exp(A), A, G)
    (ours,) = torch.autograd.grad(exponential(A), A, G)
    assert_close(ours, project_to_algebra(theirs), rtol=0, atol=1e-13 * scale)
