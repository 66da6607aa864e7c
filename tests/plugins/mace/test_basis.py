"""Radial basis and spherical harmonics.

Oracles: e3nn's spherical harmonics; the addition theorem; derivatives in closed form at the cutoff.
"""

import warnings

import pytest
import torch
from torch.testing import assert_close

from pipeline_mace.basis import RadialBasis, compute_envelope, compute_spherical_harmonics


def draw_vectors(n=20):
    return torch.randn(n, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("lmax", [0, 1, 2, 3])
def test_harmonics_are_those_of_e3nn(lmax):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # e3nn scripts its code when it is imported
        o3 = pytest.importorskip("e3nn.o3")
        expected = o3.spherical_harmonics(
            list(range(lmax + 1)), draw_vectors(), normalize=True, normalization="component"
        )
    assert_close(
        compute_spherical_harmonics(draw_vectors(), lmax), expected, rtol=1e-12, atol=1e-12
    )


def test_harmonics_obey_the_addition_theorem():
    """Σ_m Y_lm(a) Y_lm(b) = (2 l + 1) P_l(cos), with Legendre's polynomial."""
    a, b = draw_vectors(), draw_vectors().flip(0)
    cosine = torch.nn.functional.cosine_similarity(a, b)
    products = (compute_spherical_harmonics(a, 3) * compute_spherical_harmonics(b, 3)).split(
        [1, 3, 5, 7], dim=1
    )
    legendre = [
        torch.ones_like(cosine),
        cosine,
        (3 * cosine**2 - 1) / 2,
        (5 * cosine**3 - 3 * cosine) / 2,
    ]
    for degree, (product, polynomial) in enumerate(zip(products, legendre, strict=True)):
        assert_close(product.sum(1), (2 * degree + 1) * polynomial)


def test_the_radial_basis_ends_smoothly():
    basis = RadialBasis(8, 4.0, 5)
    r = torch.tensor([4.0 - 1e-7, 4.0, 5.0], dtype=torch.float64, requires_grad=True)
    value = basis(r)
    slope = torch.autograd.grad(value.sum(), r)[0]
    assert value.abs().max() < 1e-15
    assert slope.abs().max() < 1e-12
    assert (compute_envelope(torch.tensor([1e-9]), 5) - 1).abs() < 1e-6


def test_bessel_functions_are_orthonormal():
    """∫ b_m b_n r² dr = δ_mn over the sphere of the cutoff, without the envelope."""
    basis = RadialBasis(5, 4.0, 5)
    r = torch.linspace(1e-6, 4.0, 20_001, dtype=torch.float64)
    waves = basis(r) / compute_envelope(r / 4.0, 5).clamp(min=1e-300)[:, None]
    waves = waves[:-1] * r[:-1, None]
    gram = waves.T @ waves * (4.0 / 20_000)
    assert_close(gram, torch.eye(5, dtype=torch.float64), rtol=0, atol=1e-3)
