"""Rational-quadratic splines.

Oracles: torch's softmax and softplus, finite differences, symmetry, exact inversion.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import softmax, softplus
from torch.testing import assert_close

from kernels.su3.matrices import draw_real
from pipeline_kernels.su3.splines import MIN_SLOPE, MIN_WIDTH, count_bins, evaluate_spline

FEW = settings(max_examples=25)
# What softplus takes to a slope of 1.
SHIFT = torch.log(torch.expm1(torch.tensor(1 - MIN_SLOPE, dtype=torch.float64)))


def draw_parameters(n, bins, seed=0):
    return draw_real(n, 3 * bins + 1, seed=seed)


def draw_points(n, seed=0):
    return torch.rand(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def map_by_spline(x, parameters, inverse=False):
    result = evaluate_spline(x, 1 - x, parameters, inverse)
    return x * (1 + result.low)


@FEW
@given(bins=st.integers(1, 20), seed=st.integers(0, 2**20))
def test_knots_and_slopes_are_what_the_parameters_say(bins, seed):
    parameters = draw_parameters(1, bins, seed)
    widths, heights, slopes = parameters[0].split([bins, bins, bins + 1])
    starts, ends = (
        (MIN_WIDTH + (1 - bins * MIN_WIDTH) * softmax(p, 0)).cumsum(0)[:-1]
        for p in (widths, heights)
    )
    expected = MIN_SLOPE + softplus(slopes + SHIFT)
    rows = parameters.expand(bins - 1, -1)
    assert_close(map_by_spline(starts, rows), ends)
    assert_close(evaluate_spline(starts, 1 - starts, rows).slope, expected[1:-1])
    corners = torch.tensor([1e-13, 1 - 1e-13], dtype=torch.float64)
    at_ends = evaluate_spline(corners, 1 - corners, parameters.expand(2, -1))
    assert_close(at_ends.slope, expected[[0, -1]], rtol=1e-8, atol=0)


@FEW
@given(bins=st.integers(1, 20), seed=st.integers(0, 2**20), inverse=st.booleans())
def test_slope_is_the_derivative(bins, seed, inverse):
    x, step = 0.01 + 0.98 * draw_points(50, seed), 1e-6
    parameters = draw_parameters(50, bins, seed)
    above, below = (map_by_spline(x + h, parameters, inverse) for h in (step, -step))
    slope = evaluate_spline(x, 1 - x, parameters, inverse).slope
    assert_close((above - below) / (2 * step), slope, rtol=1e-3, atol=1e-3)
    assert (slope > 0).all()


def test_one_bin_is_a_quotient_of_quadratics():
    """Four values fix it: those of Durkan et al., eq. 4, for w = h = 1, d_0 = 1 / 2, d_1 = 2."""
    slopes = torch.tensor([0.5, 2], dtype=torch.float64)
    inverse_softplus = torch.log(torch.expm1(slopes - MIN_SLOPE))
    parameters = torch.cat([torch.zeros(2).double(), inverse_softplus - SHIFT])
    x = torch.tensor([0.125, 0.25, 0.5, 0.75], dtype=torch.float64)
    expected = (x**2 + 0.5 * x * (1 - x)) / (1 + 0.5 * x * (1 - x))
    assert_close(map_by_spline(x, parameters.expand(4, -1)), expected)


@FEW
@given(bins=st.integers(1, 20), seed=st.integers(0, 2**20))
def test_inverse_undoes(bins, seed):
    x, parameters = draw_points(200, seed), draw_parameters(200, bins, seed)
    forth = evaluate_spline(x, 1 - x, parameters)
    y, rest = x * (1 + forth.low), (1 - x) * (1 + forth.high)
    back = evaluate_spline(y, rest, parameters, inverse=True)
    assert_close(y + rest, torch.ones_like(y), rtol=0, atol=1e-14)
    assert_close(y * (1 + back.low), x, rtol=1e-10, atol=0)
    assert_close(rest * (1 + back.high), 1 - x, rtol=1e-10, atol=0)
    assert_close(forth.slope * back.slope, torch.ones_like(y), rtol=1e-9, atol=0)


@pytest.mark.slow
@FEW
@given(bins=st.integers(1, 9), seed=st.integers(0, 2**20), inverse=st.booleans())
def test_mirrored_parameters_mirror_it(bins, seed, inverse):
    x, parameters = draw_points(60, seed), draw_parameters(60, bins, seed)
    mirrored = torch.cat(
        [part.flip(-1) for part in parameters.split([bins, bins, bins + 1], -1)], -1
    )
    one, other = (
        evaluate_spline(x, 1 - x, parameters, inverse),
        evaluate_spline(1 - x, x, mirrored, inverse),
    )
    for ours, theirs in zip(one, (other.high, other.low, other.slope), strict=True):
        assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("inverse", [False, True])
def test_ends_keep_their_digits(inverse):
    """The distance from an end changes in proportion, down to the smallest numbers."""
    tiny = torch.tensor([1e-20, 1e-12, 1e-6], dtype=torch.float64)
    parameters = draw_parameters(1, 4).expand(3, -1)
    left = evaluate_spline(tiny, torch.ones(3).double(), parameters, inverse)
    right = evaluate_spline(torch.ones(3).double(), tiny, parameters, inverse)
    for ratio, slope in ((left.low, left.slope), (right.high, right.slope)):
        assert_close(1 + ratio, slope, rtol=1e-4, atol=0)
        assert_close(ratio[:2], ratio[:1].expand(2), rtol=1e-10, atol=0)


@pytest.mark.parametrize("n_parameters", [1, 3, 6, 3 * 1000 + 1])
def test_refuses_other_numbers_of_parameters(n_parameters):
    with pytest.raises(ValueError, match="expected 3 K"):
        count_bins(n_parameters)
