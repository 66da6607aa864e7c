"""Edges of networks with constant weights. Oracle: the formulas in plain PyTorch, and autograd."""

import pytest
import torch
from torch.testing import assert_close

from pipeline_kernels.equivariant.edges import (
    EdgeMeasures,
    differentiate_edges,
    measure_edges,
    reference,
)

SCALE, N_INTERVALS = 8.0, 32
TOLERANCES = {torch.float32: 2e-5, torch.float64: 1e-12}


@pytest.fixture(params=["C", "reference"], autouse=True)
def implementation(request, use_implementation):
    """Everything in the test is calculated by C, then as without a compiler."""
    with use_implementation(request.param):
        yield


def draw_vectors(n, dtype):
    """Return vectors of any direction and of lengths within the knots, and beyond them."""
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(n, 3, generator=generator, dtype=torch.float64)
    lengths = torch.linspace(0.1, 5, n, dtype=torch.float64)[:, None]
    vectors *= lengths / vectors.norm(dim=1, keepdim=True)
    vectors[:3] = torch.eye(3)[:n]
    return vectors.to(dtype)


def flatten(edges: EdgeMeasures):
    return [*edges[:3], *edges.places]


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("lmax", [0, 1, 3, 5])
@pytest.mark.parametrize("n", [3, 300])
def test_measures_are_those_of_the_formulas(n, lmax, dtype):
    vectors = draw_vectors(n, dtype)
    ours = measure_edges(vectors, lmax, SCALE, N_INTERVALS)
    theirs = reference.measure(vectors, lmax, SCALE, N_INTERVALS)
    for one, other in zip(flatten(ours), flatten(theirs), strict=True):
        assert one.dtype == other.dtype
        # Beyond the last knot the polynomials are large.
        scale = max(1.0, float(other.abs().max()))
        assert_close(one, other, rtol=0, atol=TOLERANCES[dtype] * scale)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("lmax", [0, 1, 3, 5])
def test_derivatives_are_those_of_autograd(lmax, dtype):
    vectors = draw_vectors(50, torch.float64).requires_grad_()
    exact = reference.measure(vectors, lmax, SCALE, N_INTERVALS)
    generator = torch.Generator().manual_seed(1)
    by_harmonics = torch.randn(exact.harmonics.shape, generator=generator, dtype=torch.float64)
    by_x = torch.randn(50, generator=generator, dtype=torch.float64)
    value = (by_harmonics * exact.harmonics).sum() + (by_x * SCALE * exact.distance).sum()
    (expected,) = torch.autograd.grad(value, vectors)
    edges = measure_edges(vectors.detach().to(dtype), lmax, SCALE, N_INTERVALS)
    ours = differentiate_edges(edges, by_harmonics.to(dtype), by_x.to(dtype), lmax, SCALE)
    assert ours.dtype == dtype
    scale = float(expected.abs().max())
    assert_close(ours.double(), expected, rtol=0, atol=TOLERANCES[dtype] * scale)


def test_no_edges():
    vectors = torch.zeros(0, 3)
    edges = measure_edges(vectors, 3, SCALE, N_INTERVALS)
    assert edges.harmonics.shape == (0, 16)
    by = differentiate_edges(edges, edges.harmonics, edges.distance, 3, SCALE)
    assert by.shape == (0, 3)
