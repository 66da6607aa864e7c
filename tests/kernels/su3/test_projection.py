"""Projection to U(N) and SU(N).

Oracles: scipy.linalg.polar; torch.linalg.svd, whose derivative is right where singular values
differ; finite differences; unitarity.
"""

import pytest
import scipy.linalg
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.library import opcheck
from torch.testing import assert_close

from pipeline_kernels.su3 import polar, project
from pipeline_kernels.su3.projection import reference
from pipeline_kernels.su3.projection.op import _gradient, _polar

COLOURS = [2, 3]
LIMITS = {torch.complex128: 1e-14, torch.complex64: 2e-7}


def draw_normal(*shape, seed=0, dtype=torch.complex128):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.complex128).to(dtype)


def draw_with_singular_values(unitary, values, n=4):
    """Matrices with chosen singular values and random vectors."""
    values = torch.tensor(values, dtype=torch.complex128)
    N = len(values)
    phases = torch.polar(torch.ones(n), torch.linspace(1, 2, n)).to(values)
    return phases[:, None, None] * (unitary(n, N, 1) * values) @ unitary(n, N, 2)


def measure_unitarity(U):
    one = torch.eye(U.shape[-1], dtype=U.dtype)
    return float((U @ U.mH - one).abs().max())


# Singular values: apart, nearly equal, equal, as of a unitary matrix, and of a sum of three.
CLOSE = {
    2: [[1.7, 0.4], [1, 1 - 1e-6], [1, 1], [3, 3]],
    3: [[1.7, 0.9, 0.4], [1, 1 - 1e-6, 0.3], [2, 1, 1], [1, 1, 1], [3, 3 - 1e-6, 3 - 2e-6]],
}
CASES = [(N, values) for N in COLOURS for values in CLOSE[N]]


@pytest.mark.parametrize("dtype", list(LIMITS))
@pytest.mark.parametrize("n_colours", COLOURS)
def test_polar_is_the_factor_of_scipy(implementation, n_colours, dtype):
    M = draw_normal(203, n_colours, n_colours, dtype=dtype)
    theirs = [torch.from_numpy(scipy.linalg.polar(m)[0]) for m in M.to(torch.complex128).numpy()]
    U = polar(M)
    assert U.dtype == dtype
    assert measure_unitarity(U) < LIMITS[dtype]
    assert_close(U.to(torch.complex128), torch.stack(theirs), rtol=0, atol=100 * LIMITS[dtype])


@pytest.mark.parametrize("n_colours", COLOURS)
def test_project_divides_by_the_principal_root(implementation, n_colours):
    M = draw_normal(1001, n_colours, n_colours)
    U, W = polar(M), project(M)
    root = torch.linalg.det(M) ** (1 / n_colours)  # principal
    root = root / root.abs()
    assert measure_unitarity(W) < 1e-14
    assert_close(torch.linalg.det(W), torch.ones(1001).to(W), rtol=0, atol=1e-14)
    assert_close(W * root[:, None, None], U, rtol=0, atol=1e-12)


@pytest.mark.parametrize("condition", [1e2, 1e5, 1e8])
def test_error_grows_as_the_condition_and_not_its_square(implementation, unitary, condition):
    left, right = unitary(64, 3, 3), unitary(64, 3, 4)
    values = torch.tensor([1, 0.5, 1 / condition], dtype=torch.complex128)
    U = polar((left * values) @ right)
    assert measure_unitarity(U) < 1e-14
    assert_close(U, left @ right, rtol=0, atol=1e-14 * condition)


@pytest.mark.parametrize("scale", [1e-40, 1e40])
def test_scale_does_not_matter(implementation, scale):
    M = draw_normal(17, 3, 3)
    # The scaled matrices are rounded, which the smallest singular value magnifies.
    condition = float(torch.linalg.cond(M).max())
    assert_close(polar(scale * M), polar(M), rtol=0, atol=1e-15 * condition)


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("n_colours", COLOURS)
def test_derivative_is_that_through_the_svd(implementation, n_colours, special):
    M, G = (draw_normal(50, n_colours, n_colours, seed=s) for s in (1, 2))
    M.requires_grad_()
    left, _, right = torch.linalg.svd(M)
    U = left @ right
    if special:
        angle = torch.linalg.det(U).angle() / n_colours
        U = U * torch.exp(-1j * angle)[:, None, None]
    (theirs,) = torch.autograd.grad(U, M, G)
    (ours,) = torch.autograd.grad(project(M) if special else polar(M), M, G)
    scale = theirs.abs().amax((1, 2), keepdim=True)
    assert_close(ours / scale, theirs / scale, rtol=0, atol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("function", [polar, project])
@pytest.mark.parametrize(("n_colours", "values"), CASES)
def test_derivatives_where_singular_values_are_close(
    implementation, unitary, n_colours, values, function
):
    M = draw_with_singular_values(unitary, values, 2).requires_grad_()
    assert gradcheck(function, (M,))
    assert gradgradcheck(function, (M,), fast_mode=True)


@pytest.mark.parametrize(("n_colours", "values"), CASES)
def test_kernel_equals_the_reference(compiled_c, unitary, n_colours, values):
    M = draw_with_singular_values(unitary, values, 21)
    G = draw_normal(21, n_colours, n_colours, seed=5)
    for special in (False, True):
        W = _polar(M, special)
        assert_close(W, reference.polar(M, special), rtol=0, atol=1e-14)
        result = _gradient(M, W, G, special)
        assert_close(result, reference.polar_gradient(M, W, G, special), rtol=0, atol=1e-13)


@pytest.mark.parametrize("phase", [1, -1, 1j])
@pytest.mark.parametrize("n_colours", COLOURS)
def test_multiples_of_one_have_derivatives(implementation, n_colours, phase):
    """Of an element of the centre as of any other; `torch.linalg.svd` would give NaN."""
    M = (phase * torch.eye(n_colours, dtype=torch.complex128))[None]
    G = draw_normal(1, n_colours, n_colours)
    (result,) = torch.autograd.grad(polar(M.requires_grad_()), M, G)
    # du = (dm - u dm^dagger u) / 2
    assert_close(result, (G - phase**2 * G.mH) / 2, rtol=0, atol=1e-15)


def test_solve_anticommutator_solves_its_equation():
    Y = draw_normal(20, 3, 3)
    P = draw_normal(20, 3, 3, seed=1)
    P = P @ P.mH
    X = reference.solve_anticommutator(P, Y)
    assert_close(P @ X + X @ P, Y, rtol=0, atol=1e-10)


def test_a_matrix_does_not_depend_on_its_neighbours(compiled_c, use_threads):
    M = draw_normal(1031, 3, 3)
    whole = polar(M)
    assert torch.equal(torch.cat([polar(part) for part in M.split(7)]), whole)
    with use_threads(2):
        assert torch.equal(polar(M), whole)


def test_takes_any_shape_and_layout(implementation):
    M = draw_normal(2, 5, 3, 3)
    assert_close(polar(M.mH), polar(M).mH, rtol=0, atol=1e-14)
    assert_close(polar(M.transpose(0, 1)), polar(M).transpose(0, 1), rtol=0, atol=0)
    assert polar(M[:0]).shape == (0, 5, 3, 3)


@pytest.mark.slow
@pytest.mark.parametrize("n_colours", COLOURS)
def test_operators(implementation, n_colours):
    M = draw_normal(3, n_colours, n_colours).requires_grad_()
    opcheck(_polar, (M, True))
    opcheck(_gradient, (M, M.detach(), M.detach(), False))


@pytest.mark.parametrize("bad", [torch.ones(2, 2), torch.ones(4, 4).to(torch.complex64)])
def test_refuses_what_is_no_matrix_of_colours(bad):
    with pytest.raises(ValueError, match="M: expected"):
        polar(bad)
    with pytest.raises(ValueError, match="M: expected"):
        project(bad)
