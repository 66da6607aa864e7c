"""Geometry of edges and its reverse, in C and in PyTorch.

Oracle: autograd through distances and harmonics, whose own is e3nn (test_harmonics.py).
"""

import pytest
import torch

from pipeline_kernels.equivariant.geometry import Geometry, Knots, measure, reverse
from pipeline_kernels.equivariant.harmonics import solid_harmonics
from pipeline_kernels.equivariant.tensor_product.interpolated import Places
from pipeline_kernels.native import UnavailableError

SIZES = [0, 1, 64, 150]
"""Edges: none, less than a block of the routine, one, several and a part."""


def make_vectors(n_edges, dtype=torch.float64):
    torch.manual_seed(n_edges)
    vectors = torch.randn(n_edges, 3, dtype=torch.float64)
    lengths = 0.3 + 4.1 * torch.rand(n_edges, dtype=torch.float64)
    return (vectors * (lengths / vectors.norm(dim=1))[:, None]).to(dtype)


@pytest.fixture(params=["C", "PyTorch"])
def language(request, monkeypatch):
    """Have the library, or do without it."""
    if request.param == "PyTorch":

        def refuse(*_, **__):
            raise UnavailableError("none")

        monkeypatch.setattr("pipeline_kernels.equivariant.geometry.edges.load_library", refuse)
    return request.param


@pytest.mark.parametrize("lmax", [0, 1, 2, 3])
@pytest.mark.parametrize("n_edges", SIZES)
def test_geometry_is_that_of_its_formulas(n_edges, lmax, language):
    vectors, knots = make_vectors(n_edges), Knots(16, 4.5, lmax)
    actual = measure(vectors, knots)
    distances = vectors.norm(dim=1)
    torch.testing.assert_close(actual.distances, distances)
    torch.testing.assert_close(actual.directions, -vectors / distances[:, None])
    expected = solid_harmonics(actual.directions[:, [2, 0, 1]], lmax)
    torch.testing.assert_close(actual.harmonics, expected)
    places = Places.of(distances * (16 / 4.5), 16)
    assert torch.equal(actual.places.first, places.first)
    for own, other in zip(actual.places[1:], places[1:], strict=True):
        torch.testing.assert_close(own, other)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("n_edges", SIZES)
def test_reverse_is_that_of_autograd(n_edges, dtype, language):
    knots, exact = Knots(16, 4.5, 3), make_vectors(n_edges).requires_grad_()
    distances = exact.norm(dim=1)
    harmonics = solid_harmonics((-exact / distances[:, None])[:, [2, 0, 1]], 3)
    by_harmonics, by_places = torch.randn_like(harmonics), torch.randn_like(distances)
    energy = (harmonics * by_harmonics).sum() + (distances * (16 / 4.5) * by_places).sum()
    (expected,) = torch.autograd.grad(energy, exact)
    geometry = measure(exact.detach().to(dtype), knots)
    actual = reverse(geometry, by_harmonics.detach().to(dtype), by_places.to(dtype), knots)
    assert actual.dtype == dtype
    accuracy = (
        {"rtol": 1e-10, "atol": 1e-10} if dtype == torch.float64 else {"rtol": 0, "atol": 1e-3}
    )
    torch.testing.assert_close(actual.double(), expected, **accuracy)


@pytest.mark.parametrize("length", [4.5, 4.6])
def test_beyond_the_last_knot_the_last_interval_goes_on(length, language):
    vectors = torch.tensor([[0.0, length, 0.0]], dtype=torch.float64)
    first, factors, _ = measure(vectors, Knots(16, 4.5, 0)).places
    expected = Places.of(torch.tensor([length * 16 / 4.5], dtype=torch.float64), 16)
    assert first.tolist() == [45]
    torch.testing.assert_close(factors, expected.factors)


def test_of_what_is_no_number_rows_are_in_the_table():
    vectors = torch.tensor([[torch.nan, 0.0, 0.0], [0.0, 0.0, 0.0]])
    geometry = measure(vectors, Knots(16, 4.5, 1))
    assert isinstance(geometry, Geometry)
    assert geometry.places.first.tolist() == [0, 0]
    assert geometry.directions.isnan().any(1).all()
