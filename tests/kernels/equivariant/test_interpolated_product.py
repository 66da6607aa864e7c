"""Tensor products with interpolated weights.

Oracles: splines reproduce polynomials of degree five exactly; the product is that of the reference
in plain PyTorch with the same weights, and its reverse that of autograd.
"""

import pytest
import torch

from pipeline_kernels.equivariant.tensor_product import ProductPlan, interpolated, reference
from pipeline_kernels.equivariant.tensor_product.interpolated import Ends
from pipeline_kernels.hermite import Places
from pipeline_kernels.message import Segments

N_INTERVALS, N_NODES, N_EDGES = 7, 6, 40


def make_table(coefficients):
    """Return values, slopes and curvatures at the knots of polynomials (6, size)."""
    knots = torch.arange(N_INTERVALS + 1, dtype=torch.float64)
    rows = []
    for _ in range(3):
        rows.append(sum(c * knots[:, None] ** k for k, c in enumerate(coefficients)))
        coefficients = torch.stack([k * c for k, c in enumerate(coefficients)][1:])
    return torch.stack(rows, 1).flatten(0, 1)


def test_splines_reproduce_polynomials_of_degree_five():
    torch.manual_seed(0)
    coefficients = torch.randn(6, 5, dtype=torch.float64) / 7.0 ** torch.arange(6)[:, None]
    x = (7 * torch.rand(50, dtype=torch.float64)).requires_grad_()
    exact = sum(c * x[:, None] ** k for k, c in enumerate(coefficients))
    values, slopes = Places.of(x.detach(), N_INTERVALS).interpolate(make_table(coefficients))
    torch.testing.assert_close(values, exact.detach(), rtol=1e-12, atol=1e-12)
    (slope,) = torch.autograd.grad(exact[:, 2].sum(), x)
    torch.testing.assert_close(slopes[:, 2], slope, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("channels", [16, 3])  # whole vectors, and others
@pytest.mark.parametrize("is_sorted", [True, False])
def test_product_and_reverse_are_those_of_the_reference(dtype, channels, is_sorted):
    generator = torch.Generator().manual_seed(1)
    plan = ProductPlan.of("0e+1o", 3, "0e+1o+2e+3o")
    senders, receivers = torch.randint(N_NODES, (2, N_EDGES), generator=generator)
    receivers = receivers.sort().values if is_sorted else receivers
    ends = Ends(Segments.of(senders, N_NODES), Segments.of(receivers, N_NODES), plan)
    sizes = [
        (N_NODES, plan.dim_in, channels),
        (N_EDGES, plan.dim_sh),
        (3 * N_INTERVALS + 3, plan.n_paths * channels),
        (N_NODES, plan.dim_out, channels),
    ]
    h, Y, table, g = (torch.randn(s, generator=generator, dtype=torch.float64) for s in sizes)
    x = N_INTERVALS * torch.rand(N_EDGES, generator=generator, dtype=torch.float64)
    for tensor in (h, Y, x):
        tensor.requires_grad_()
    w, slopes = Places.of(x.detach(), N_INTERVALS).interpolate(table)
    w = w + (x - x.detach())[:, None] * slopes  # the same, of this derivative
    weights = w.unflatten(1, (plan.n_paths, -1))
    exact = reference.product(h, Y, weights, (senders, receivers), N_NODES, plan)
    by_h, by_Y, by_x = torch.autograd.grad((exact * g).sum(), (h, Y, x))
    h, Y, table, g, x = (tensor.detach().to(dtype) for tensor in (h, Y, table, g, x))
    places = Places.of(x, N_INTERVALS)
    accuracy = {"rtol": 1e-9, "atol": 1e-9} if dtype == torch.float64 else {"rtol": 0, "atol": 2e-2}
    actual = interpolated.multiply(h, Y, table, places, ends)
    torch.testing.assert_close(actual.double(), exact.detach(), **accuracy)
    for by_features in (True, False):
        parts = interpolated.differentiate(g, h, Y, table, places, ends, by_features)
        if by_features:
            torch.testing.assert_close(parts[0].double(), by_h, **accuracy)
        torch.testing.assert_close(parts[1].double(), by_Y, **accuracy)
        torch.testing.assert_close(parts[2].double(), by_x, **accuracy)
