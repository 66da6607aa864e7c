"""Solid harmonics. Oracle: those of e3nn."""

import pytest
import torch
from torch.testing import assert_close

from pipeline_kernels.equivariant.harmonics import solid_harmonics

o3 = pytest.importorskip("e3nn.o3")

LMAX = 6


def test_equal_those_of_e3nn():
    vectors = torch.randn(50, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    vectors = torch.cat([vectors, torch.eye(3).double(), torch.zeros(1, 3).double()])
    turned = vectors[:, [1, 2, 0]]
    degrees = list(range(LMAX + 1))
    theirs = o3.spherical_harmonics(degrees, turned, normalize=False, normalization="component")
    assert_close(solid_harmonics(vectors, LMAX), theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
def test_derivatives_are_those_of_polynomials():
    vectors = torch.randn(4, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    vectors[0] = 0
    vectors.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: solid_harmonics(x, LMAX), vectors)
    assert torch.autograd.gradgradcheck(lambda x: solid_harmonics(x, 4), vectors)
