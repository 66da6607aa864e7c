"""The spectral map.

Oracles: finite-difference Jacobians on the group, invariance of the Haar measure, exact inversion,
equivariance, torch.linalg.eigvals, automatic differentiation of plain PyTorch (the reference).
"""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.library import opcheck
from torch.testing import assert_close

from pipeline_kernels.compiler import LEVELS
from pipeline_kernels.su3 import eigenangles, spectral_map
from pipeline_kernels.su3.spectral import reference
from pipeline_kernels.su3.spectral.op import _gradient, _map

COLOURS = [2, 3]
DIRECTIONS = [False, True]
TURN = 2 * math.pi


def draw_parameters(n, n_colours, bins, seed=0, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    sizes = (n, n_colours - 1, 3 * bins + 1)
    return scale * torch.randn(sizes, generator=generator, dtype=torch.float64)


def make_near_walls(n_colours, gap):
    """Angles with two neighbours so close, in all ways in which that can be."""
    half = gap / 2
    if n_colours == 2:
        rows = [[half, -half], [math.pi - half, half - math.pi]]
    else:
        rows = [
            [1.3, half - 0.65, -half - 0.65],
            [half + 0.8, 0.8 - half, -1.6],
            [math.pi - half - 0.3, 0.6, half - math.pi - 0.3],
        ]
    return torch.tensor(rows, dtype=torch.float64)


def find_largest(x):
    return max([1.0, *x.abs().flatten().tolist()])


def view_real(outputs):
    W, log_det = outputs
    return torch.view_as_real(W), log_det


@pytest.mark.parametrize("inverse", DIRECTIONS)
@pytest.mark.parametrize("n_colours", COLOURS)
def test_zero_parameters_change_nothing(implementation, unitary, n_colours, inverse):
    U = torch.cat([unitary(500, n_colours), torch.eye(n_colours)[None]])
    for dtype in (torch.complex64, torch.complex128):
        W, log_det = spectral_map(
            U.to(dtype), torch.zeros(501, n_colours - 1, 25).double(), inverse
        )
        assert torch.equal(W, torch.eye(n_colours, dtype=dtype).expand_as(W))
        assert (log_det == 0).all()


@pytest.mark.parametrize("inverse", DIRECTIONS)
@pytest.mark.parametrize("n_colours", COLOURS)
def test_stays_in_the_group(implementation, unitary, n_colours, inverse):
    U, one = unitary(2000, n_colours), torch.eye(n_colours, dtype=torch.complex128)
    W, _ = spectral_map(U, draw_parameters(2000, n_colours, 8), inverse)
    assert_close(W @ W.mH, one.expand_as(W), rtol=0, atol=1e-14)
    assert_close(torch.linalg.det(W), torch.ones(2000).to(W), rtol=0, atol=1e-14)
    assert_close(W @ U, U @ W, rtol=0, atol=1e-14)


@pytest.mark.parametrize("gap", [1e-6, 1e-12, 0])
@pytest.mark.parametrize("n_colours", COLOURS)
def test_stays_in_the_group_near_walls(implementation, with_angles, n_colours, gap):
    U = with_angles(make_near_walls(n_colours, gap))
    W, _ = spectral_map(U, draw_parameters(len(U), n_colours, 8))
    one = torch.eye(n_colours, dtype=W.dtype)
    assert_close(W @ W.mH, one.expand_as(W), rtol=0, atol=1e-14)


@pytest.mark.parametrize("inverse", DIRECTIONS)
@pytest.mark.parametrize("n_colours", COLOURS)
def test_inverse_undoes(implementation, unitary, with_angles, n_colours, inverse):
    walls = [with_angles(make_near_walls(n_colours, gap)) for gap in (1e-2, 1e-6, 1e-10)]
    U = torch.cat([unitary(4000, n_colours), *walls])
    parameters = draw_parameters(len(U), n_colours, 8)
    W, log_det = spectral_map(U, parameters, inverse)
    back, other = spectral_map(W @ U, parameters, not inverse)
    assert_close(back @ W @ U, U, rtol=0, atol=1e-10)
    plain = slice(4000)
    assert_close(other[plain], -log_det[plain], rtol=0, atol=1e-10)
    assert_close(other, -log_det, rtol=0, atol=1e-5)  # the gap of 1e-10 has six digits


@pytest.mark.parametrize("n_colours", COLOURS)
def test_angles_move_by_the_splines(implementation, unitary, n_colours):
    """Oracle: torch.linalg.eigvals of W L, box coordinates written out, and order."""
    U, parameters = unitary(300, n_colours), draw_parameters(1, n_colours, 5)
    W, _ = spectral_map(U, parameters.expand(300, -1, -1))
    moved = torch.linalg.eigvals(W @ U).angle().sort(-1).values
    ours = torch.remainder(eigenangles(W @ U) + math.pi, TURN) - math.pi
    assert_close(ours.sort(-1).values, moved, rtol=0, atol=1e-13)

    def coordinate(V):
        angles = eigenangles(V)
        return (angles[:, 0] - angles[:, -1]) / TURN

    before, after = coordinate(U), coordinate(W @ U)
    order = before.argsort()
    assert (after[order].diff() > 0).all()  # one increasing function for all
    inner = (before > 0.3) & (before < 0.7)
    assert ((after - before)[inner].abs() > 1e-3).any()


@pytest.mark.parametrize("inverse", DIRECTIONS)
@pytest.mark.parametrize("n_colours", COLOURS)
def test_equivariant_under_conjugation(implementation, unitary, n_colours, inverse):
    U, V = unitary(1000, n_colours), unitary(1000, n_colours, seed=1)
    parameters = draw_parameters(1000, n_colours, 8)
    W, log_det = spectral_map(U, parameters, inverse)
    turned, same = spectral_map(V @ U @ V.mH, parameters, inverse)
    assert_close(turned, V @ W @ V.mH, rtol=0, atol=1e-11)
    assert_close(same, log_det, rtol=0, atol=1e-10)


@pytest.mark.parametrize("inverse", DIRECTIONS)
@pytest.mark.parametrize("n_colours", COLOURS)
def test_determinant_is_that_of_the_group(
    implementation, unitary, turned, generators, n_colours, inverse
):
    """Oracle: Jacobian of L -> W L in the coordinates of the algebra, by central differences."""
    T, step, n = generators(n_colours), 1e-5, 20
    U, parameters = unitary(n, n_colours), draw_parameters(n, n_colours, 3)
    W, log_det = spectral_map(U, parameters, inverse)
    columns = []
    for a in range(len(T)):
        x = torch.zeros(n, len(T)).double()
        x[:, a] = step
        ends = [turned(U, s * x) for s in (1, -1)]
        up, down = (spectral_map(V, parameters, inverse)[0] @ V for V in ends)
        change = (W @ U).mH @ (up - down) / (2 * step)
        columns.append(torch.einsum("aij,nji->na", T, change).imag / 2)
    jacobian = torch.stack(columns, -1)  # (n, 8, 8) or (n, 3, 3)
    assert_close(torch.linalg.slogdet(jacobian)[0], torch.ones(n).double())
    assert_close(torch.linalg.slogdet(jacobian)[1], log_det, rtol=0, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("inverse", DIRECTIONS)
@pytest.mark.parametrize("n_colours", COLOURS)
def test_determinant_preserves_the_haar_measure(implementation, unitary, n_colours, inverse):
    """Oracle: int dU det f(W U) = int dU f(U); the characters' integrals are 0 and 1."""
    n = 40_000
    U = unitary(n, n_colours, seed=5)
    parameters = draw_parameters(1, n_colours, 4, scale=0.3).expand(n, -1, -1)
    W, log_det = spectral_map(U, parameters, inverse)
    character = (W @ U).diagonal(dim1=-2, dim2=-1).sum(-1)
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
@pytest.mark.parametrize("inverse", DIRECTIONS)
@pytest.mark.parametrize("n_colours", COLOURS)
def test_first_and_second_derivatives(implementation, unitary, turned, n_colours, inverse):
    U, x = unitary(1, n_colours), torch.zeros(1, n_colours**2 - 1).double().requires_grad_()
    parameters = draw_parameters(1, n_colours, 2).requires_grad_()

    def function(x, parameters):
        return view_real(spectral_map(turned(U, x), parameters, inverse))

    assert torch.autograd.gradcheck(function, (x, parameters))
    assert torch.autograd.gradgradcheck(function, (x, parameters), atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("inverse", DIRECTIONS)
@pytest.mark.parametrize("n_colours", COLOURS)
def test_derivatives_near_equal_angles(implementation, with_angles, turned, n_colours, inverse):
    """Of second order they may be as large as one over the gap; steps are a thousandth of it."""
    U = with_angles(make_near_walls(n_colours, 1e-6))
    parameters = draw_parameters(len(U), n_colours, 2)
    x = torch.zeros(len(U), n_colours**2 - 1).double().requires_grad_()

    def function(x):
        return view_real(spectral_map(turned(U, x), parameters, inverse))

    assert torch.autograd.gradcheck(function, x, eps=1e-9, atol=1e-4, rtol=1e-4)
    assert torch.autograd.gradgradcheck(function, x, eps=1e-9, atol=30, rtol=1e-3, fast_mode=True)


@pytest.mark.slow
@settings(deadline=None, max_examples=20)
@given(
    n_colours=st.sampled_from(COLOURS),
    n=st.integers(0, 40),
    bins=st.integers(1, 20),
    dtype=st.sampled_from([torch.complex64, torch.complex128]),
    inverse=st.booleans(),
    threads=st.sampled_from([1, 2]),
    seed=st.integers(0, 2**20),
)
def test_kernels_equal_the_reference(
    use_threads, compiled_c, unitary, *, n_colours, n, bins, dtype, inverse, threads, seed
):
    # Single precision matrices are no unitary ones in double, and each treats that in its way.
    exact = 1e-9 if dtype == torch.complex128 else 1e-3
    U = unitary(n, n_colours, seed).to(dtype)
    parameters = draw_parameters(n, n_colours, bins, seed)
    by_W, by_log_det = torch.randn_like(U), torch.randn(n).double()
    expected = reference.spectral_map(U, parameters, inverse)
    gradient = reference.spectral_gradient(U, parameters, by_W, by_log_det, inverse)
    with use_threads(threads):
        result = _map(U, parameters, inverse)
        ours = _gradient(U, parameters, by_W, by_log_det, inverse)
    for x, y in zip((*result, *ours), (*expected, *gradient), strict=True):
        assert_close(x, y, rtol=exact, atol=exact * find_largest(y))


@pytest.mark.parametrize("inverse", DIRECTIONS)
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("n_colours", COLOURS)
def test_equal_angles_give_numbers(implementation, with_angles, n_colours, dtype, inverse):
    """At the centre of the group and at walls; the derivative is one of those around."""
    phases = torch.polar(torch.ones(n_colours), TURN * torch.arange(n_colours) / n_colours)
    centre = phases[:, None, None] * torch.eye(n_colours)
    noise = 1e-7 * torch.randn(50, n_colours, n_colours, generator=torch.manual_seed(0))
    walls = with_angles(make_near_walls(n_colours, 0))
    U = torch.cat([centre, centre[:1] + noise, walls]).to(dtype).requires_grad_()
    parameters = draw_parameters(len(U), n_colours, 8).requires_grad_()
    W, log_det = spectral_map(U, parameters, inverse)
    total = W.real.sum() + log_det.sum()
    by_U, by_parameters = torch.autograd.grad(total, (U, parameters), create_graph=True)
    for result in (W, log_det, by_U, by_parameters):
        assert result.isfinite().all()
    at_the_centre = slice(n_colours)
    assert_close(W[at_the_centre].detach(), torch.eye(n_colours).to(W).expand_as(centre))
    assert (by_U[at_the_centre].abs() < 100).all()
    assert (by_U[-len(walls) :].abs() < 1000).all()
    for second in torch.autograd.grad(by_U.abs().sum() + by_parameters.sum(), (U, parameters)):
        assert second.isfinite().all()


@pytest.mark.parametrize("n_colours", COLOURS)
def test_only_what_is_needed_gets_a_gradient(implementation, unitary, n_colours):
    U, parameters = unitary(7, n_colours), draw_parameters(7, n_colours, 3)
    W, _ = spectral_map(U.requires_grad_(), parameters)
    W.real.sum().backward()
    assert U.grad is not None
    assert parameters.grad is None
    _, log_det = spectral_map(U.detach(), parameters.requires_grad_())
    log_det.sum().backward()
    assert parameters.grad.abs().sum() > 0


def test_operators_keep_the_rules_of_torch(compiled_c, unitary):
    by_W, by_log_det = unitary(5, 3, seed=2), torch.ones(5).double()
    needed = (unitary(5, 3), draw_parameters(5, 3, 3), by_W, by_log_det)
    needed = [x.requires_grad_() for x in needed]
    opcheck(_map, (*needed[:2], False))
    # Without tracing second derivatives, which takes a minute: they are plain PyTorch.
    rules = ("test_schema", "test_autograd_registration", "test_faketensor")
    opcheck(_gradient, (*needed, False), test_utils=rules)


def test_does_not_depend_on_layout_and_neighbours(use_threads, compiled_c, unitary):
    U, parameters = unitary(3001, 3), draw_parameters(3001, 3, 8)
    expected = _map(U, parameters, False)
    spread = parameters.mT.contiguous().mT
    with use_threads(2):
        result = _map(U.mT.contiguous().mT, spread, False)
    alone = _map(U[1234:1235], parameters[1234:1235], False)
    for x, y, z in zip(expected, result, alone, strict=True):
        assert torch.equal(x, y)
        assert torch.equal(x[1234:1235], z)


@pytest.mark.slow
@pytest.mark.parametrize("level", list(LEVELS)[1:])
def test_processors_with_shorter_vectors(use_level, unitary, level):
    U, parameters = unitary(301, 3), draw_parameters(301, 3, 5)
    by_W, by_log_det = torch.randn_like(U), torch.ones(301).double()
    with use_level(level):
        image = _map(U, parameters, False)
        gradient = _gradient(U, parameters, by_W, by_log_det, False)
    expected = reference.spectral_map(U, parameters, False)
    for x, y in zip(image, expected, strict=True):
        assert_close(x, y, rtol=1e-9, atol=1e-9)
    expected = reference.spectral_gradient(U, parameters, by_W, by_log_det, False)
    for x, y in zip(gradient, expected, strict=True):
        assert_close(x, y, rtol=1e-9, atol=1e-9 * find_largest(y))


@pytest.mark.parametrize(
    ("L", "parameters", "message"),
    [
        (torch.eye(3), torch.zeros(1, 2, 4), "L: expected one dtype"),
        (torch.eye(3, dtype=torch.complex128), torch.zeros(1, 2, 4), r"expected \(n, N, N\)"),
        (torch.zeros(5, 3, 3, dtype=torch.complex64), torch.zeros(5, 1, 4).double(), "3 K . 1"),
        (torch.zeros(5, 3, 3, dtype=torch.complex64), torch.zeros(5, 2, 5).double(), "3 K . 1"),
        (torch.zeros(5, 3, 3, dtype=torch.complex64), torch.zeros(5, 2, 4), "expected float64"),
    ],
)
def test_refuses_what_does_not_fit(L, parameters, message):
    with pytest.raises(ValueError, match=message):
        spectral_map(L, parameters)
