"""Projection to SU(N).

Oracles: scipy.linalg.polar; torch.linalg.svd, whose derivative is right where singular values
differ; finite differences; unitarity.
"""

import pytest
import scipy.linalg
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

from kernels.contract import Call
from kernels.su3.family import C_FIRST, MatrixContract, with_gradient
from kernels.su3.matrices import COLOURS, check_unitary, draw_normal, draw_unitary
from pipeline_kernels.su3 import project
from pipeline_kernels.su3.projection import reference

LIMITS = {torch.complex128: 1e-14, torch.complex64: 2e-7}
# Singular values: apart, nearly equal, equal, as of a unitary matrix, and of a sum of three.
CASES = [
    *([1.7, 0.4], [1, 1 - 1e-6], [1, 1], [3, 3]),
    *([1.7, 0.9, 0.4], [1, 1 - 1e-6, 0.3], [2, 1, 1], [1, 1, 1], [3, 3 - 1e-6, 3 - 2e-6]),
]


def draw_with_singular_values(values, n):
    """Draw matrices with chosen singular values and random vectors."""
    values = torch.tensor(values, dtype=torch.complex128)
    N = len(values)
    phases = torch.polar(torch.ones(n), torch.linspace(1, 2, n)).to(values)
    return phases[:, None, None] * (draw_unitary(n, N, 1) * values) @ draw_unitary(n, N, 2)


def find_polar_factor(M):
    """Return the projection times the principal root of the determinant that it lacks."""
    root = torch.linalg.det(M.to(torch.complex128)) ** (1 / M.shape[-1])  # principal
    return project(M).to(root.dtype) * (root / root.abs())[:, None, None]


class TestProjection(MatrixContract):
    folder = "su3/projection"
    refused = [
        (0, lambda M: M.real, "M: expected"),
        (0, lambda _: torch.ones(4, 4).to(torch.complex64), "M: expected"),
    ]

    def draw(self, generator, n, n_colours):
        """Draw matrices, of which the first are unitary and others nearly singular."""
        M = draw_normal(n, n_colours, n_colours, seed=generator.initial_seed())
        M[: n // 4] = draw_unitary(n // 4, n_colours)
        M[n // 4 : n // 2, 0] *= 1e-2
        formula = reference.project, reference.project_gradient
        return Call(project, with_gradient(*formula, keep_result=True), [M])

    def compare(self, ours, exact, tolerance):
        """Compare numbers; where derivatives divide by small sums, rounding grows as their square.

        The largest is one over a sum of singular values, whose rounding counts once more.
        """
        size = float(exact.abs().max()) if exact.numel() else 0.0
        super().compare(ours, exact, tolerance * max(1.0, size / 50))


@pytest.mark.parametrize("dtype", list(LIMITS))
@pytest.mark.parametrize("n_colours", COLOURS)
def test_the_polar_factor_is_that_of_scipy(implementation, n_colours, dtype):
    M = draw_normal(203, n_colours, n_colours, dtype=dtype)
    theirs = [torch.from_numpy(scipy.linalg.polar(m)[0]) for m in M.to(torch.complex128).numpy()]
    assert project(M).dtype == dtype
    check_unitary(project(M), LIMITS[dtype])
    U = find_polar_factor(M)
    assert_close(U, torch.stack(theirs), rtol=0, atol=100 * LIMITS[dtype])


@pytest.mark.parametrize("condition", [1e2, 1e5, 1e8])
def test_error_grows_as_the_condition_and_not_its_square(implementation, condition):
    left, right = draw_unitary(64, 3, 3), draw_unitary(64, 3, 4)
    values = torch.tensor([1, 0.5, 1 / condition], dtype=torch.complex128)
    M = (left * values) @ right
    check_unitary(project(M))
    assert_close(project(M), project(left @ right), rtol=0, atol=1e-14 * condition)


@pytest.mark.parametrize("scale", [1e-40, 1e40])
def test_scale_does_not_matter(implementation, scale):
    M = draw_normal(17, 3, 3)
    # The scaled matrices are rounded, which the smallest singular value magnifies.
    condition = float(torch.linalg.cond(M).max())
    assert_close(project(scale * M), project(M), rtol=0, atol=1e-15 * condition)


@pytest.mark.parametrize("n_colours", COLOURS)
def test_derivative_is_that_through_the_svd(implementation, n_colours):
    M, G = (draw_normal(50, n_colours, n_colours, seed=s) for s in (1, 2))
    M.requires_grad_()
    left, _, right = torch.linalg.svd(M)
    U = left @ right
    angle = torch.linalg.det(U).angle() / n_colours
    U = U * torch.exp(-1j * angle)[:, None, None]
    (theirs,) = torch.autograd.grad(U, M, G)
    (ours,) = torch.autograd.grad(project(M), M, G)
    scale = theirs.abs().amax((1, 2), keepdim=True)
    assert_close(ours / scale, theirs / scale, rtol=0, atol=1e-11)


@pytest.mark.slow
@C_FIRST
@pytest.mark.parametrize("values", CASES)
def test_derivatives_where_singular_values_are_close(implementation, values):
    M = draw_with_singular_values(values, 2).requires_grad_()
    assert gradcheck(project, (M,))
    assert gradgradcheck(project, (M,), fast_mode=True)


@pytest.mark.parametrize("phase", [1, -1, 1j])
@pytest.mark.parametrize("n_colours", COLOURS)
def test_multiples_of_one_have_derivatives(implementation, n_colours, phase):
    """Of an element of the centre as of any other; `torch.linalg.svd` would give NaN."""
    M = (phase * torch.eye(n_colours, dtype=torch.complex128))[None]
    G = draw_normal(1, n_colours, n_colours)
    W = project(M.requires_grad_())
    (result,) = torch.autograd.grad(W, M, G)
    # dw = w X, where X is the traceless antihermitian part of dm over the phase
    X = W.detach().mH @ G
    X = (X - X.mH) / 2
    X = X - X[0].trace() / n_colours * torch.eye(n_colours).to(X)
    assert_close(result, phase * X, rtol=0, atol=1e-14)
