"""The residual step.

Oracles: finite-difference Jacobians on the group, invariance of the Haar measure, exact inversion,
equivariance, the step that gradient descent of the Wilson action takes, automatic differentiation
of plain PyTorch (the reference), in which torch.linalg calculates exponentials and determinants.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.library import opcheck
from torch.testing import assert_close

from pipeline_kernels.compiler import LEVELS
from pipeline_kernels.su3 import exponential, residual_step
from pipeline_kernels.su3.residual import reference
from pipeline_kernels.su3.residual.op import _gradient, _step

COLOURS = [2, 3]
DIRECTIONS = [False, True]


def draw_weights(n, n_paths, seed=0, largest=0.9):
    """Weights whose magnitudes sum to the largest step."""
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(n, n_paths, generator=generator, dtype=torch.float64)
    return largest * weights / weights.abs().sum(1, keepdim=True)


def draw_case(unitary, n, n_colours, n_paths=3, seed=0):
    """Links, paths in the group, weights."""
    paths = unitary(n * n_paths, n_colours, seed + 1).view(n, n_paths, n_colours, n_colours)
    return unitary(n, n_colours, seed), paths, draw_weights(n, n_paths, seed)


def find_largest(x):
    return max([1.0, *x.abs().flatten().tolist()])


@pytest.mark.parametrize("inverse", DIRECTIONS)
@pytest.mark.parametrize("n_colours", COLOURS)
def test_zero_weights_change_nothing(implementation, unitary, n_colours, inverse):
    for dtype in (torch.complex64, torch.complex128):
        U, paths, weights = draw_case(unitary, 50, n_colours)
        moved, log_det = residual_step(U.to(dtype), paths.to(dtype), 0 * weights, inverse)
        assert_close(moved, U.to(dtype), rtol=0, atol=1e-15)
        assert (log_det == 0).all()


@pytest.mark.parametrize("n_colours", COLOURS)
def test_a_step_is_along_the_gradient(implementation, unitary, n_colours):
    """Oracle: torch's autograd of Re tr U Sigma^dagger, which a step makes smaller."""
    U, paths, weights = draw_case(unitary, 40, n_colours)
    x = torch.zeros(40, n_colours**2 - 1, dtype=torch.float64, requires_grad=True)
    T = reference.make_basis(n_colours, torch.device("cpu"))
    turned = torch.matrix_exp(torch.einsum("na,aij->nij", x.to(T.dtype), T)) @ U
    sigma = (weights[..., None, None] * paths).sum(1)
    (slope,) = torch.autograd.grad((turned * sigma.conj()).sum().real, x)
    # Re tr T U S^dagger = - Re tr T^dagger U S^dagger
    g = torch.einsum("na,aij->nij", -slope.to(T.dtype), T)
    moved, _ = residual_step(U, paths, weights)
    assert_close(moved, torch.matrix_exp(g) @ U, rtol=0, atol=1e-13)


@pytest.mark.parametrize("n_colours", COLOURS)
def test_inverse_undoes(implementation, unitary, n_colours):
    U, paths, weights = draw_case(unitary, 2003, n_colours)
    one = torch.eye(n_colours, dtype=U.dtype)
    for first in DIRECTIONS:
        moved, log_det = residual_step(U, paths, weights, first)
        back, other = residual_step(moved, paths, weights, not first)
        assert_close(moved @ moved.mH, one.expand_as(U), rtol=0, atol=1e-13)
        assert_close(torch.linalg.det(moved), torch.ones(2003).to(U), rtol=0, atol=1e-13)
        assert_close(back, U, rtol=0, atol=1e-12)
        assert_close(other, -log_det, rtol=0, atol=1e-11)
        assert float(log_det.abs().max()) > 1


@pytest.mark.parametrize("inverse", DIRECTIONS)
@pytest.mark.parametrize("n_colours", COLOURS)
def test_equivariant_under_gauge_transformations(implementation, unitary, n_colours, inverse):
    U, paths, weights = draw_case(unitary, 300, n_colours)
    left, right = unitary(300, n_colours, 7), unitary(300, n_colours, 8).mH
    moved, log_det = residual_step(U, paths, weights, inverse)
    around = left[:, None] @ paths @ right[:, None]
    turned, same = residual_step(left @ U @ right, around, weights, inverse)
    assert_close(turned, left @ moved @ right, rtol=0, atol=1e-12)
    assert_close(same, log_det, rtol=0, atol=1e-11)


@pytest.mark.parametrize("inverse", DIRECTIONS)
@pytest.mark.parametrize("n_colours", COLOURS)
def test_determinant_is_that_of_the_group(
    implementation, unitary, turned, generators, n_colours, inverse
):
    """Oracle: Jacobian of U -> U' in the coordinates of the algebra, by central differences."""
    T, step, n = generators(n_colours), 1e-5, 20
    U, paths, weights = draw_case(unitary, n, n_colours)
    moved, log_det = residual_step(U, paths, weights, inverse)
    columns = []
    for a in range(len(T)):
        x = torch.zeros(n, len(T)).double()
        x[:, a] = step
        up, down = (residual_step(turned(U, s * x), paths, weights, inverse)[0] for s in (1, -1))
        change = moved.mH @ (up - down) / (2 * step)
        columns.append(torch.einsum("aij,nji->na", T, change).imag / 2)
    jacobian = torch.stack(columns, -1)  # (n, 8, 8) or (n, 3, 3)
    assert_close(torch.linalg.slogdet(jacobian)[0], torch.ones(n).double())
    assert_close(torch.linalg.slogdet(jacobian)[1], log_det, rtol=0, atol=1e-7)


@pytest.mark.parametrize("inverse", DIRECTIONS)
@pytest.mark.parametrize("n_colours", COLOURS)
def test_determinant_preserves_the_haar_measure(implementation, unitary, n_colours, inverse):
    """Oracle: int dU det f(U') = int dU f(U); the characters' integrals are 0 and 1."""
    n = 20_000
    U, path, weight = unitary(n, n_colours, 5), unitary(1, n_colours, 6), draw_weights(1, 1)
    paths = path[None].expand(n, 1, -1, -1)
    moved, log_det = residual_step(U, paths, 0.5 * weight.expand(n, 1), inverse)
    character, weight = moved.diagonal(dim1=-2, dim2=-1).sum(-1), log_det.exp()
    for values, expected in (
        (weight, 1.0),
        (weight * character.abs().square(), 1.0),
        (weight * character.real, 0.0),
    ):
        error = float(values.std()) / n**0.5
        assert error < 0.03
        assert abs(float(values.mean()) - expected) < 4 * error


@pytest.mark.slow
@pytest.mark.parametrize("inverse", DIRECTIONS)
@pytest.mark.parametrize("n_colours", COLOURS)
def test_first_and_second_derivatives(implementation, unitary, turned, n_colours, inverse):
    U, paths, weights = draw_case(unitary, 1, n_colours, 2)
    x = torch.zeros(1, n_colours**2 - 1).double().requires_grad_()

    def function(x, paths, weights):
        moved, log_det = residual_step(turned(U, x), paths, weights, inverse)
        return torch.view_as_real(moved), log_det

    inputs = (x, paths.requires_grad_(), weights.requires_grad_())
    assert torch.autograd.gradcheck(function, inputs)
    assert torch.autograd.gradgradcheck(function, inputs, atol=1e-4, fast_mode=True)


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


@pytest.mark.slow
@settings(deadline=None, max_examples=20)
@given(
    n_colours=st.sampled_from(COLOURS),
    n=st.integers(0, 40),
    n_paths=st.integers(1, 20),
    dtype=st.sampled_from([torch.complex64, torch.complex128]),
    inverse=st.booleans(),
    threads=st.sampled_from([1, 2]),
    seed=st.integers(0, 2**20),
)
def test_kernels_equal_the_reference(
    use_threads, compiled_c, unitary, *, n_colours, n, n_paths, dtype, inverse, threads, seed
):
    exact = 1e-10 if dtype == torch.complex128 else 1e-4
    U, paths, weights = draw_case(unitary, n, n_colours, n_paths, seed)
    inputs = (U.to(dtype), paths.to(dtype), weights)
    expected = reference.residual_step(*inputs, inverse)
    by = (torch.randn_like(expected[0]), torch.randn(n).double())
    gradient = reference.residual_gradient(*inputs, expected[0], *by, inverse)
    with use_threads(threads):
        result = _step(*inputs, inverse)
        ours = _gradient(*inputs, expected[0], *by, inverse)
    for x, y in zip((*result, *ours), (*expected, *gradient), strict=True):
        assert_close(x, y, rtol=exact, atol=exact * find_largest(y))


@pytest.mark.parametrize("n_colours", COLOURS)
def test_only_what_is_needed_gets_a_gradient(implementation, unitary, n_colours):
    U, paths, weights = draw_case(unitary, 7, n_colours)
    moved, _ = residual_step(U, paths, weights.requires_grad_())
    moved.real.sum().backward()
    assert weights.grad.abs().sum() > 0
    assert U.grad is None


def test_operators_keep_the_rules_of_torch(compiled_c, unitary):
    U, paths, weights = draw_case(unitary, 5, 3)
    by = (unitary(5, 3, 9), torch.ones(5).double())
    needed = [x.requires_grad_() for x in (U, paths, weights)]
    opcheck(_step, (*needed, False))
    # Without tracing second derivatives, which takes a minute: they are plain PyTorch.
    rules = ("test_schema", "test_autograd_registration", "test_faketensor")
    opcheck(_gradient, (*needed, U.detach(), *by, False), test_utils=rules)


def test_does_not_depend_on_layout_and_neighbours(use_threads, compiled_c, unitary):
    for inverse in DIRECTIONS:
        U, paths, weights = draw_case(unitary, 2001, 3)
        expected = _step(U, paths, weights, inverse)
        with use_threads(2):
            result = _step(U.mT.contiguous().mT, paths.mT.contiguous().mT, weights, inverse)
        alone = _step(U[1234:1235], paths[1234:1235], weights[1234:1235], inverse)
        for x, y, z in zip(expected, result, alone, strict=True):
            assert torch.equal(x, y)
            assert torch.equal(x[1234:1235], z)


@pytest.mark.slow
@pytest.mark.parametrize("level", list(LEVELS)[1:])
def test_processors_with_shorter_vectors(use_level, unitary, level):
    inputs = draw_case(unitary, 101, 3)
    by = (torch.randn_like(inputs[0]), torch.ones(101).double())
    expected = reference.residual_step(*inputs, True)
    with use_level(level):
        image = _step(*inputs, True)
        gradient = _gradient(*inputs, expected[0], *by, True)
    for x, y in zip(image, expected, strict=True):
        assert_close(x, y, rtol=1e-10, atol=1e-10)
    expected = reference.residual_gradient(*inputs, expected[0], *by, True)
    for x, y in zip(gradient, expected, strict=True):
        assert_close(x, y, rtol=1e-10, atol=1e-10 * find_largest(y))


ONE = torch.zeros(5, 3, 3, dtype=torch.complex64)


@pytest.mark.parametrize(
    ("U", "paths", "weights", "message"),
    [
        (ONE.real, ONE[:, None], torch.zeros(5, 1).double(), "U: expected one dtype"),
        (ONE[0], ONE[:, None], torch.zeros(5, 1).double(), r"U: expected \(n, N, N\)"),
        (ONE, ONE[:, None], torch.zeros(5).double(), r"weights: expected \(n, K\)"),
        (ONE, ONE[:, None], torch.zeros(5, 2).double(), "paths: expected"),
        (ONE, ONE[:, None].to(torch.complex128), torch.zeros(5, 1).double(), "complex64 on cpu"),
        (ONE, ONE[:, None], torch.zeros(5, 1), "weights: expected float64"),
    ],
)
def test_refuses_what_does_not_fit(U, paths, weights, message):
    with pytest.raises(ValueError, match=message):
        residual_step(U, paths, weights)
