"""Hermite splines. Oracles: polynomials of degree five, which they reproduce, and autograd."""

import math

import torch
from hypothesis import strategies as st
from torch.testing import assert_close

from kernels.contract import Call, KernelContract
from pipeline_kernels.hermite import (
    Jet,
    Places,
    differentiate_interpolation,
    expand_jet,
    interpolate,
)

N_INTERVALS = 7


def evaluate(coefficients, x):
    values = torch.zeros_like(x)[:, None]
    for row in coefficients.flip(0):
        values = values * x[:, None] + row
    return values


def tabulate(coefficients):
    knots = torch.arange(N_INTERVALS + 1, dtype=torch.float64)
    return expand_jet(lambda x: evaluate(coefficients, x), knots).tabulate(1.0)


def interpolate_and_differentiate(x, table, g, widths):
    """Return groups of values, and the derivative of their sum weighted by g."""
    g = [part.contiguous() for part in g.split(widths, 1)]
    by_x = differentiate_interpolation(g, x.double(), table).to(x.dtype)
    return [*interpolate(x.double(), table, widths), by_x]


def interpolate_by_autograd(x, table, g, widths):
    x = x.detach().requires_grad_()
    values, _ = Places.of(x, N_INTERVALS).interpolate(table)
    (by_x,) = torch.autograd.grad(values, x, g)
    return [*values.detach().split(widths, 1), by_x]


class TestHermite(KernelContract):
    folder = "hermite"
    tolerances = {torch.float32: 2e-5, torch.float64: 1e-12}
    options = {"n": [40, 1, 300], "widths": [[1, 20, 3, 16], [5]]}
    mixed = 0.05
    many, empty = {"n": 5000}, {"n": 0}
    random = {"n": st.integers(0, 60), "widths": st.lists(st.integers(1, 40), min_size=1)}
    without = {
        "derivatives": "autograd does not see them, and callers take them by a function",
        "test_operators_keep_the_rules_of_torch": "they are functions and no operators",
        "test_compiles_without_a_graph_break": "they are functions and no operators",
        "test_refuses_what_does_not_fit": "only code of the package calls them",
    }

    def draw(self, generator, n, widths):
        """Numbers of all intervals and a bit beyond, which the outermost polynomials reach."""
        x = N_INTERVALS * torch.rand(n, generator=generator, dtype=torch.float64)
        shapes = (3 * (N_INTERVALS + 1), sum(widths)), (n, sum(widths))
        table, g = (torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes)
        functions = interpolate_and_differentiate, interpolate_by_autograd
        return Call(*functions, [1.1 * x - 0.3, table, g], [widths])


def test_polynomials_of_degree_five_are_exact(implementation):
    """Between the knots, at the last, and beyond, where the outermost polynomials go on."""
    coefficients = torch.randn(6, 20, generator=torch.Generator().manual_seed(0)).double()
    coefficients /= float(N_INTERVALS) ** torch.arange(6)[:, None]
    x = torch.cat([torch.linspace(-0.4, N_INTERVALS + 0.7, 300), torch.arange(8)]).double()
    exact = evaluate(coefficients, x.requires_grad_())
    *groups, by_x = interpolate_and_differentiate(
        x.detach(), tabulate(coefficients), torch.ones_like(exact), [1, 3, 16]
    )
    assert all(group.is_contiguous() for group in groups)
    assert_close(torch.cat(groups, 1), exact.detach(), rtol=1e-9, atol=1e-9)
    assert_close(by_x, *torch.autograd.grad(exact.sum(), x), rtol=1e-8, atol=1e-8)


def test_jets_are_derivatives():
    """Of sines and of a constant, with analytic derivatives."""
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


def test_the_error_falls_with_the_sixth_power_of_the_interval(implementation):
    """Hermite interpolation of degree five (any textbook): h^6 max|f^(6)| / 46080."""
    for n_intervals in (8, 16):
        h = 2 * math.pi / n_intervals
        knots = h * torch.arange(n_intervals + 1, dtype=torch.float64)
        table = expand_jet(lambda x: torch.sin(x)[:, None], knots).tabulate(h)
        x = torch.linspace(0, n_intervals, 4001, dtype=torch.float64)
        error = float((interpolate(x, table, [1])[0][:, 0] - torch.sin(h * x)).abs().max())
        assert 0.5 < error / (h**6 / 46080) <= 1 + 1e-6
