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


def test_the_radial_basis_ends_smoothly():
    basis = RadialBasis(8, 4.0, 5)
    r = torch.tensor([4.0 - 1e-7, 4.0, 5.0], dtype=torch.float64, requires_grad=True)
    value = basis(r)
    slope = torch.autograd.grad(value.sum(), r)[0]
    assert value.abs().max() < 1e-15
    assert slope.abs().max() < 1e-12
    assert (compute_envelope(torch.tensor([1e-9]), 5) - 1).abs() < 1e-6
