"""Exponential and logarithm.

Oracles: scipy.linalg.expm and logm, torch.linalg.matrix_exp and its derivative, finite differences,
that the one undoes the other.
"""

import math

import pytest
import scipy.linalg
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

from kernels.contract import Call
from kernels.su3.family import C_FIRST, MatrixContract, with_gradient
from kernels.su3.matrices import (
    COLOURS,
    check_unitary,
    draw_normal,
    draw_real,
    draw_unitary,
    draw_with_angles,
    make_centre,
)
from pipeline_kernels.su3 import exponential, logarithm, project
from pipeline_kernels.su3.exponential import reference as exponential_reference
from pipeline_kernels.su3.exponential.reference import project_to_algebra
from pipeline_kernels.su3.logarithm import reference as logarithm_reference
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


def take_logarithm(U):
    """Take it of what is led back to the group: its derivatives are along that."""
    return logarithm(project(U))


class TestExponential(MatrixContract):
    folder = "su3/exponential"
    refused = [(0, lambda A: A.real, "A: expected")]

    def draw(self, generator, n, n_colours):
        """Draw matrices with more than a part in the algebra; the first have equal eigenvalues."""
        A = draw_normal(n, n_colours, n_colours, seed=generator.initial_seed())
        A[:4] = torch.diag_embed(1j * torch.tensor([1, 1, -2][:n_colours]).double())
        scales = torch.tensor([2, 0.4, 0, 1e-6]).repeat(n)[:n, None, None]
        return Call(exponential, exponential_reference.exponential, [scales * A])


class TestLogarithm(MatrixContract):
    folder = "su3/logarithm"
    untraced = ("_gradient",)
    refused = [(0, lambda U: U[0, 0], "U: expected")]

    def draw(self, generator, n, n_colours):
        """Draw matrices of which the first have equal eigenvalues, off the cut."""
        seed = generator.initial_seed()
        angles = draw_real(n, n_colours, seed=seed).clamp(-1, 1)
        angles[:2], angles[2:4] = torch.tensor([1, 1, -2][:n_colours]).double(), 0
        U = draw_with_angles(angles - angles.mean(1, keepdim=True), seed)
        values = logarithm_reference.logarithm, logarithm_reference.logarithm_gradient
        return Call(logarithm, with_gradient(*values, keep_result=True), [U])


@pytest.mark.parametrize("scale", [0, 1e-8, 0.1, 1, 5, 40])
@pytest.mark.parametrize("n_colours", COLOURS)
def test_exponential_is_that_of_scipy(implementation, n_colours, scale):
    A = draw_algebra(scale, n_colours)
    result, limit = exponential(A), 1e-14 * max(1, scale)
    assert_close(result, torch.from_numpy(scipy.linalg.expm(A.numpy())), rtol=0, atol=limit)
    check_unitary(result, limit)


@pytest.mark.parametrize("n_colours", COLOURS)
def test_logarithm_is_that_of_scipy(implementation, n_colours):
    A = draw_algebra(0.4, n_colours)  # angles below pi
    U = torch.from_numpy(scipy.linalg.expm(A.numpy()))
    theirs = torch.stack([torch.from_numpy(scipy.linalg.logm(u)) for u in U.numpy()])
    assert_close(logarithm(U), theirs, rtol=0, atol=1e-13)


@pytest.mark.parametrize("n_colours", COLOURS)
def test_exponential_undoes_the_logarithm(implementation, n_colours):
    U = draw_unitary(2003, n_colours)
    A = logarithm(U)
    assert_close(A, project_to_algebra(A), rtol=0, atol=1e-15)
    angles = torch.linalg.eigvalsh(-1j * A)
    from_cut = 2 * math.pi - (angles[:, -1] - angles[:, 0])
    assert (from_cut > 0).all()
    error = (exponential(A) - U).abs().amax((1, 2))
    assert (error < 1e-14 * (1 + 1 / from_cut)).all()


@pytest.mark.parametrize("gap", [0, 1e-12, 1e-9, 1e-6, 1e-3])
def test_logarithm_undoes_the_exponential_of_close_eigenvalues(implementation, gap):
    """And so do their derivatives, along the group."""
    A, G = build_algebra([0.5 + gap, 0.5], 50).requires_grad_(), draw_normal(50, 3, 3)
    result = logarithm(exponential(A))
    assert_close(result, A, rtol=0, atol=1e-14)
    (back,) = torch.autograd.grad(result, A, G)
    assert_close(back, project_to_algebra(G), rtol=0, atol=1e-12)


@pytest.mark.slow
@C_FIRST
@pytest.mark.parametrize("function", [exponential, take_logarithm])
@pytest.mark.parametrize("angles", CASES)
def test_derivatives_of_both_orders(implementation, angles, function):
    A = build_algebra(angles, 1)
    at = A if function is exponential else torch.linalg.matrix_exp(A)
    assert gradcheck(function, (at.requires_grad_(),))
    assert gradgradcheck(function, (at,), fast_mode=True)


@pytest.mark.parametrize("scale", [1, 3, 20])
@pytest.mark.parametrize("n_colours", COLOURS)
def test_derivative_of_large_matrices(implementation, n_colours, scale):
    A, G = draw_algebra(scale, n_colours, 1).requires_grad_(), draw_normal(60, n_colours, n_colours)
    (theirs,) = torch.autograd.grad(torch.linalg.matrix_exp(A), A, G)
    (ours,) = torch.autograd.grad(exponential(A), A, G)
    assert_close(ours, project_to_algebra(theirs), rtol=0, atol=1e-13 * scale)


@pytest.mark.parametrize("n_colours", COLOURS)
def test_centre_gives_finite_numbers(implementation, n_colours):
    U = make_centre(n_colours).to(torch.complex128).requires_grad_()
    A = logarithm(U)
    (grad,) = torch.autograd.grad(A, U, torch.ones_like(A))
    assert A.isfinite().all()
    assert grad.isfinite().all()
    assert_close(A[0], torch.zeros_like(A[0]), rtol=0, atol=1e-15)  # of one
