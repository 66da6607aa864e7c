"""Exponential and logarithm.

Oracles: scipy.linalg.expm and logm, torch.linalg.matrix_exp and its derivative, finite differences,
that the one undoes the other.
"""

import math

import pytest
import scipy.linalg
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.library import opcheck
from torch.testing import assert_close

from pipeline_kernels.su3 import exponential, logarithm, project
from pipeline_kernels.su3.exponential import reference
from pipeline_kernels.su3.exponential.op import _exponential
from pipeline_kernels.su3.exponential.op import _gradient as _exponential_gradient
from pipeline_kernels.su3.logarithm import reference as logarithm_reference
from pipeline_kernels.su3.logarithm.op import _gradient as _logarithm_gradient
from pipeline_kernels.su3.logarithm.op import _logarithm

COLOURS = [2, 3]
GAPS = [0, 1e-12, 1e-9, 1e-6, 1e-3]
# Angles, the last of each closed by their sum: apart, near the cut, a pair, all close, none.
ANGLES = {
    2: [[0.7], [3.0], [1e-6], [0]],
    3: [[0.7, 0.1], [2.6, -0.2], [0.4, 0.4 - 1e-6], [1, 1], [1e-6, 0], [1e-6, 1e-6], [0, 0]],
}
CASES = [(N, angles) for N in COLOURS for angles in ANGLES[N]]


def draw_normal(*shape, seed=0, dtype=torch.complex128):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.complex128).to(dtype)


def close_angles(angles, n=3):
    """Copies of angles, with one more that makes their sum zero."""
    angles = torch.tensor(angles, dtype=torch.float64)
    return torch.cat([angles, -angles.sum()[None]]).expand(n, -1)


def build_algebra(unitary, angles, n=3):
    """Elements of the algebra with chosen angles."""
    V = unitary(n, len(angles) + 1, 7)
    return (V * (1j * close_angles(angles, n))[:, None, :]) @ V.mH


@pytest.mark.parametrize("scale", [0, 1e-8, 0.1, 1, 5, 40])
@pytest.mark.parametrize("n_colours", COLOURS)
def test_exponential_is_that_of_scipy(implementation, n_colours, scale):
    A = reference.project_to_algebra(scale * draw_normal(60, n_colours, n_colours))
    theirs = torch.from_numpy(scipy.linalg.expm(A.numpy()))
    result = exponential(A)
    one = torch.eye(n_colours).to(result)
    limit = 1e-14 * max(1, scale)
    assert_close(result, theirs, rtol=0, atol=limit)
    assert_close(result @ result.mH, one.expand_as(result), rtol=0, atol=limit)
    assert_close(torch.linalg.det(result), torch.ones(60).to(result), rtol=0, atol=limit)


@pytest.mark.parametrize("n_colours", COLOURS)
def test_exponential_ignores_what_leads_out_of_the_group(implementation, n_colours):
    A = draw_normal(9, n_colours, n_colours)
    assert_close(exponential(A), exponential(reference.project_to_algebra(A)), rtol=0, atol=1e-15)


@pytest.mark.parametrize("n_colours", COLOURS)
def test_logarithm_is_that_of_scipy(implementation, n_colours):
    A = reference.project_to_algebra(0.4 * draw_normal(60, n_colours, n_colours))  # angles below pi
    U = torch.from_numpy(scipy.linalg.expm(A.numpy()))
    theirs = torch.stack([torch.from_numpy(scipy.linalg.logm(u)) for u in U.numpy()])
    assert_close(logarithm(U), theirs, rtol=0, atol=1e-13)


@pytest.mark.parametrize("n_colours", COLOURS)
def test_logarithm_undoes_the_exponential(implementation, unitary, n_colours):
    U = unitary(2003, n_colours)
    A = logarithm(U)
    assert_close(A, reference.project_to_algebra(A), rtol=0, atol=1e-15)
    angles = torch.linalg.eigvalsh(-1j * A)
    from_cut = 2 * math.pi - (angles[:, -1] - angles[:, 0])
    assert (from_cut > 0).all()
    error = (exponential(A) - U).abs().amax((1, 2))
    assert (error < 1e-14 * (1 + 1 / from_cut)).all()


@pytest.mark.parametrize("gap", GAPS)
def test_logarithm_of_close_eigenvalues(implementation, unitary, gap):
    A = build_algebra(unitary, [0.5 + gap, 0.5], 50)
    result = logarithm(torch.from_numpy(scipy.linalg.expm(A.numpy())))
    assert_close(result, A, rtol=0, atol=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize(("n_colours", "angles"), CASES)
def test_derivatives_of_the_exponential(implementation, unitary, n_colours, angles):
    A = build_algebra(unitary, angles, 1).requires_grad_()
    assert gradcheck(exponential, (A,))
    assert gradgradcheck(exponential, (A,), fast_mode=True)


@pytest.mark.slow
@pytest.mark.parametrize(("n_colours", "angles"), CASES)
def test_derivatives_of_the_logarithm(implementation, unitary, n_colours, angles):
    """Along the group, to which the projection leads back."""
    U = torch.from_numpy(
        scipy.linalg.expm(build_algebra(unitary, angles, 1).numpy())
    ).requires_grad_()
    assert gradcheck(lambda u: logarithm(project(u)), (U,))
    assert gradgradcheck(lambda u: logarithm(project(u)), (U,), fast_mode=True)


@pytest.mark.parametrize("scale", [1, 3, 20])
@pytest.mark.parametrize("n_colours", COLOURS)
def test_derivative_of_large_matrices(implementation, n_colours, scale):
    A, G = (draw_normal(20, n_colours, n_colours, seed=s) for s in (1, 2))
    A = reference.project_to_algebra(scale * A).requires_grad_()
    (theirs,) = torch.autograd.grad(torch.linalg.matrix_exp(A), A, G)
    (ours,) = torch.autograd.grad(exponential(A), A, G)
    assert_close(ours, reference.project_to_algebra(theirs), rtol=0, atol=1e-13 * scale)


@pytest.mark.parametrize(("n_colours", "angles"), CASES)
def test_kernels_equal_the_reference(compiled_c, unitary, n_colours, angles):
    A = build_algebra(unitary, angles, 5)
    G = draw_normal(5, n_colours, n_colours)
    U = _exponential(A)
    assert_close(U, reference.exponential(A), rtol=0, atol=1e-14)
    assert_close(
        _exponential_gradient(A, G), reference.exponential_gradient(A, G), rtol=0, atol=1e-13
    )
    assert_close(_logarithm(U), logarithm_reference.logarithm(U), rtol=0, atol=1e-13)
    result = _logarithm_gradient(U, A, G)
    assert_close(result, logarithm_reference.logarithm_gradient(U, A, G), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("gap", GAPS)
def test_derivative_of_the_logarithm_undoes_that_of_the_exponential(implementation, unitary, gap):
    A = build_algebra(unitary, [0.5 + gap, 0.5], 50)
    G = draw_normal(50, 3, 3)
    back = _exponential_gradient(A, _logarithm_gradient(_exponential(A), A, G))
    assert_close(back, reference.project_to_algebra(G), rtol=0, atol=1e-12)


@pytest.mark.parametrize("n_colours", COLOURS)
def test_centre_gives_finite_numbers(implementation, n_colours):
    k = torch.arange(n_colours)
    U = torch.polar(torch.ones(n_colours), 2 * math.pi * k / n_colours).to(torch.complex128)
    U = (U[:, None, None] * torch.eye(n_colours)).requires_grad_()
    A = logarithm(U)
    (grad,) = torch.autograd.grad(A, U, torch.ones_like(A))
    assert A.isfinite().all()
    assert grad.isfinite().all()
    assert_close(A[0], torch.zeros_like(A[0]), rtol=0, atol=1e-15)  # of one


@pytest.mark.parametrize("n_colours", COLOURS)
def test_narrow_numbers_have_a_wide_core(implementation, unitary, n_colours):
    A, G = (draw_normal(40, n_colours, n_colours, seed=s, dtype=torch.complex64) for s in (1, 2))
    A = reference.project_to_algebra(0.3 * A)
    U = exponential(A)
    for result, wide in [
        (U, exponential(A.to(torch.complex128))),
        (logarithm(U), logarithm(U.to(torch.complex128))),
        (_exponential_gradient(A, G), reference.exponential_gradient(A.cdouble(), G.cdouble())),
    ]:
        assert result.dtype == torch.complex64
        assert_close(result.to(torch.complex128), wide, rtol=0, atol=3e-7)


@pytest.mark.slow
@pytest.mark.parametrize("n_colours", COLOURS)
def test_operators(implementation, unitary, n_colours):
    A = reference.project_to_algebra(draw_normal(3, n_colours, n_colours)).requires_grad_()
    U, G = unitary(3, n_colours), draw_normal(3, n_colours, n_colours)
    opcheck(_exponential, (A,))
    opcheck(_exponential_gradient, (A, G))
    opcheck(_logarithm, (U.requires_grad_(),))
    opcheck(_logarithm_gradient, (U.detach(), A.detach(), G))


def test_refuse_what_is_no_matrix_of_colours():
    with pytest.raises(ValueError, match="A: expected"):
        exponential(torch.ones(3, 3))
    with pytest.raises(ValueError, match="U: expected"):
        logarithm(torch.ones(3, 2).to(torch.complex64))
