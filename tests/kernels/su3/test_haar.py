"""Matrices drawn from the Haar measure.

Oracle: orthogonality of characters, integral of chi_r^* chi_s = delta_rs, and the density of
eigenangles of H. Weyl; means of 60,000 draws are compared within four standard errors.
"""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch.testing import assert_close

from kernels.su3.matrices import COLOURS, check_unitary
from pipeline_kernels.su3 import draw_haar

N_DRAWS = 60_000


@pytest.fixture(scope="module", params=COLOURS)
def draws(request):
    return draw_haar(N_DRAWS, request.param, torch.Generator().manual_seed(1))


def compute_characters(U):
    """Those of the trivial, fundamental, adjoint and two-index symmetric representation."""
    trace = U.diagonal(dim1=-2, dim2=-1).sum(-1)
    squared = (U @ U).diagonal(dim1=-2, dim2=-1).sum(-1)
    result = [torch.ones_like(trace), trace, trace.abs() ** 2 - 1]
    if U.shape[-1] == 3:
        result.append((trace**2 + squared) / 2)  # of SU(2), it is the adjoint one
    return torch.stack([x.to(trace.dtype) for x in result])


def test_characters_are_orthonormal(draws):
    chi = compute_characters(draws)
    products = chi[:, None].conj() * chi[None]
    error = products.std(-1) / math.sqrt(N_DRAWS)
    distance = (products.mean(-1) - torch.eye(len(chi))).abs()
    assert (distance <= 4 * error + 1e-12).all()


def test_are_special_unitary(draws):
    check_unitary(draws)


def test_measure_is_invariant(draws):
    """A fixed factor on either side leaves the mean of a product of entries as it is."""
    fixed = draw_haar(1, draws.shape[-1], torch.Generator().manual_seed(5))
    for U in (draws, fixed @ draws, draws @ fixed):
        second = (U[:, 0, 1].abs() ** 2).mean()  # 1 / N
        assert abs(second - 1 / draws.shape[-1]) < 4 * 0.3 / math.sqrt(N_DRAWS)
        assert U.mean(0).abs().max() < 4 / math.sqrt(N_DRAWS)


def test_angles_of_su2_have_weyls_density():
    U = draw_haar(N_DRAWS, 2, torch.Generator().manual_seed(2))
    angles = torch.linalg.eigvals(U)[:, 0].angle().abs().numpy()

    def cumulative(t):  # integral of 2 / pi sin(t)^2
        return (t - np.sin(t) * np.cos(t)) / np.pi

    assert stats.kstest(angles, cumulative).pvalue > 1e-3


def test_generator_decides():
    first, again = (draw_haar(5, 3, torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(first, again)
    narrow = draw_haar(5, 3, torch.Generator().manual_seed(3), torch.complex64)
    assert narrow.dtype == torch.complex64
    assert_close(narrow.to(torch.complex128), first, rtol=0, atol=1e-7)
    assert draw_haar(0, 2).shape == (0, 2, 2)


@pytest.mark.parametrize("arguments", [(2, 4), (-1, 3)])
def test_refuses_other_numbers(arguments):
    with pytest.raises(ValueError, match="n, n_colours: expected"):
        draw_haar(*arguments)
    with pytest.raises(ValueError, match="dtype: expected"):
        draw_haar(2, 3, dtype=torch.float64)
