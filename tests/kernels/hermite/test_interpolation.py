"""Hermite splines. Oracles: polynomials of degree five, which they reproduce, and autograd."""

import math

import pytest
import torch
from torch.testing import assert_close

from pipeline_kernels.hermite import (
    Jet,
    Places,
    differentiate_interpolation,
    expand_jet,
    interpolate,
    reference,
)

N_INTERVALS = 7
WIDTHS = [1, 20, 3, 16]
TOLERANCES = {torch.float32: 2e-4, torch.float64: 1e-11}


@pytest.fixture(params=["C", "reference"], autouse=True)
def implementation(request, use_implementation):
    """Everything in the test is calculated by C, then as without a compiler."""
    with use_implementation(request.param):
        yield


def draw_polynomials(size):
    """Return coefficients (6, size) of polynomials of size one between the knots."""
    generator = torch.Generator().manual_seed(0)
    coefficients = torch.randn(6, size, generator=generator, dtype=torch.float64)
    return coefficients / float(N_INTERVALS) ** torch.arange(6)[:, None]


def evaluate(coefficients, x):
    values = torch.zeros_like(x)[:, None]
    for row in coefficients.flip(0):
        values = values * x[:, None] + row
    return values


def tabulate(coefficients, dtype=torch.float64):
    knots = torch.arange(N_INTERVALS + 1, dtype=torch.float64)
    return expand_jet(lambda x: evaluate(coefficients, x), knots).tabulate(1.0).to(dtype)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("n", [1, 300])
def test_polynomials_of_degree_five_are_exact(n, dtype):
    coefficients = draw_polynomials(sum(WIDTHS))
    table = tabulate(coefficients, dtype)
    generator = torch.Generator().manual_seed(1)
    x = N_INTERVALS * torch.rand(n, generator=generator, dtype=torch.float64)
    x[0] = N_INTERVALS  # the last knot
    x.requires_grad_()
    exact = evaluate(coefficients, x)
    groups = interpolate(x.detach(), table, WIDTHS)
    assert [group.shape for group in groups] == [(n, width) for width in WIDTHS]
    for one, other in zip(groups, exact.split(WIDTHS, 1), strict=True):
        assert one.dtype == dtype
        assert one.is_contiguous()
        assert_close(one.double(), other.detach(), rtol=0, atol=TOLERANCES[dtype])
    g = [torch.randn(y.shape, generator=generator, dtype=torch.float64) for y in groups]
    (by_x,) = torch.autograd.grad(exact, x, torch.cat(g, 1))
    actual = differentiate_interpolation([y.to(dtype) for y in g], x.detach(), table)
    assert actual.dtype == torch.float64
    assert_close(actual, by_x, rtol=0, atol=100 * TOLERANCES[dtype])


def test_beyond_the_knots_polynomials_go_on():
    coefficients, x = draw_polynomials(3), torch.tensor([-0.4, N_INTERVALS + 0.7]).double()
    (values,) = interpolate(x, tabulate(coefficients), [3])
    assert_close(values, evaluate(coefficients, x), rtol=1e-9, atol=1e-9)


def test_the_reference_gives_the_same():
    table = torch.randn(3 * N_INTERVALS + 3, 5, dtype=torch.float64)
    x = torch.linspace(0, N_INTERVALS, 40, dtype=torch.float64)
    for one, other in zip(
        interpolate(x, table, [4, 1]), reference.interpolate(x, table, [4, 1]), strict=True
    ):
        assert_close(one, other, rtol=0, atol=1e-12)
    values, _ = Places.of(x, N_INTERVALS).interpolate(table)
    assert_close(torch.cat(interpolate(x, table, [5]), 1), values, rtol=0, atol=1e-12)


def test_jets_are_derivatives():
    """Of sines and of a constant, whose derivatives are known."""
    x = torch.linspace(0.1, 2, 9, dtype=torch.float64)
    k = torch.tensor([1.0, 3.0], dtype=torch.float64)

    def function(x):
        return torch.cat([torch.sin(k * x[:, None]), torch.ones_like(x)[:, None]], 1)

    zero = torch.zeros(9, 1, dtype=torch.float64)
    sine, cosine = torch.sin(k * x[:, None]), torch.cos(k * x[:, None])
    exact = Jet(
        torch.cat([sine, zero + 1], 1),
        *(torch.cat([y, zero], 1) for y in (k * cosine, -k.square() * sine)),
    )
    for one, other in zip(expand_jet(function, x), exact, strict=True):
        assert_close(one, other)


def test_the_error_falls_with_the_sixth_power_of_the_interval():
    """Hermite interpolation of degree five (any textbook): h^6 max|f^(6)| / 46080."""
    for n_intervals in (8, 16):
        h = 2 * math.pi / n_intervals
        knots = h * torch.arange(n_intervals + 1, dtype=torch.float64)
        table = expand_jet(lambda x: torch.sin(x)[:, None], knots).tabulate(h)
        x = torch.linspace(0, n_intervals, 4001, dtype=torch.float64)
        error = float((interpolate(x, table, [1])[0][:, 0] - torch.sin(h * x)).abs().max())
        assert 0.5 < error / (h**6 / 46080) <= 1 + 1e-6
