"""Monotone rational-quadratic splines in plain PyTorch; the package has the formulas."""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

MIN_WIDTH = 1e-3  # of a bin, also its least height
MIN_SLOPE = 1e-3  # at the knots
RISE = 1 - math.exp(MIN_SLOPE - 1)  # slope of softplus where it is 1 - MIN_SLOPE


class Spline(NamedTuple):
    """A spline F at points x; each is zero where F is the identity, but for the slope, 1."""

    low: Tensor  # F(x) / x - 1
    high: Tensor  # (1 - F(x)) / (1 - x) - 1
    slope: Tensor  # F'(x)


class _Bin(NamedTuple):
    """Place of a point in its bin."""

    first: Tensor  # whether in the first bin
    start: Tensor
    end: Tensor  # image of `start`
    width: Tensor
    height: Tensor
    left: Tensor  # e_0
    right: Tensor  # e_1


def count_bins(n_parameters: int) -> int:
    """Return the number of bins of a spline with `n_parameters` parameters.

    Raises:
        ValueError: if there is none.
    """
    bins, rest = (n_parameters - 1) // 3, (n_parameters - 1) % 3
    if rest or not 1 <= bins < 1 / MIN_WIDTH:
        raise ValueError(
            f"parameters: expected 3 K + 1 per spline for K bins, 0 < K < {1 / MIN_WIDTH:g}, got "
            f"{n_parameters}; give K widths, K heights and K + 1 slopes"
        )
    return bins


def evaluate_spline(
    x: Tensor, complement: Tensor, parameters: Tensor, inverse: bool = False
) -> Spline:
    """Evaluate a spline, or its inverse.

    Args:
        x: points `(n,)` in [0, 1], float64.
        complement: `1 - x`, with all its digits where x is close to 1.
        parameters: widths, heights and slopes `(n, 3 K + 1)`, unconstrained; zero is the identity.
        inverse: whether F stands for the inverse function.

    Returns:
        The spline at each point.
    """
    mirrored, near = x > complement, torch.minimum(x, complement)
    widths, heights, excess = _compute_knots(parameters)
    widths, heights, excess = (
        torch.where(mirrored[:, None], y.flip(-1), y) for y in (widths, heights, excess)
    )
    within = _find_bin(near, widths, heights, excess, inverse)
    near_end, shift, slope = (_invert if inverse else _evaluate)(near, within)
    far_end = -shift / torch.maximum(x, complement)
    low = torch.where(mirrored, far_end, near_end)
    high = torch.where(mirrored, near_end, far_end)
    return Spline(low, high, slope)


def _compute_knots(parameters: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return widths and heights of the bins, and slopes of the knots less one."""
    bins = count_bins(parameters.shape[-1])
    widths, heights = (
        MIN_WIDTH + (1 - bins * MIN_WIDTH) * parameters[..., part].softmax(-1)
        for part in (slice(bins), slice(bins, 2 * bins))
    )
    # softplus(u + c) - softplus(c) for softplus(c) = 1 - MIN_SLOPE, exactly zero at u = 0
    u = parameters[..., 2 * bins :]
    below, above = u.clamp(max=0), u.clamp(min=0)
    small = torch.log1p(RISE * torch.expm1(below))
    large = above + torch.log1p((1 - RISE) * torch.expm1(-above))
    return widths, heights, torch.where(u > 0, large, small)


def _find_bin(x: Tensor, widths: Tensor, heights: Tensor, excess: Tensor, inverse: bool) -> _Bin:
    starts, ends = (pad(y.cumsum(-1)[:, :-1], (1, 0)) for y in (widths, heights))
    bins = ((ends if inverse else starts)[:, 1:] <= x[:, None]).sum(-1, keepdim=True)
    corners = (
        y.gather(-1, bins)[:, 0]
        for y in (starts, ends, widths, heights, excess[:, :-1], excess[:, 1:])
    )
    return _Bin(bins[:, 0] == 0, *corners)


def _evaluate(x: Tensor, within: _Bin) -> tuple[Tensor, Tensor, Tensor]:
    """Return `F(x) / x - 1`, `F(x) - x` and `F'(x)`."""
    first, start, end, width, height, left, right = within
    sigma = (height - width) / width
    kappa, xi = left + right - 2 * sigma, (x - start) / width
    eta = 1 - xi
    D = 1 + sigma + kappa * xi * eta
    ratio = ((1 + sigma) * (sigma * xi + left * eta) - kappa * xi * eta) / D
    shift = end - start + width * xi * ratio
    near = torch.where(first, ratio, shift / torch.where(first, 1, x))
    return near, shift, _slope(xi, sigma, left, right)


def _invert(y: Tensor, within: _Bin) -> tuple[Tensor, Tensor, Tensor]:
    """Return `x / y - 1`, `x - y` and `dx / dy` for `F(x) = y`.

    With theta = (y - Y) / h the root of the quadratic equation is xi = theta (1 + v),

        a theta v^2 + b v - (1 - theta) a = 0,    a = sigma - e_0 + theta kappa.
    """
    first, start, end, width, height, left, right = within
    sigma = (height - width) / width
    kappa, theta = left + right - 2 * sigma, (y - end) / height
    rest, turn = 1 - theta, 1 - 2 * theta
    a = sigma - left + theta * kappa
    b = 1 + left * turn + 2 * theta * sigma - theta * turn * kappa
    root = (b * b + 4 * a * a * theta * rest).sqrt()
    plus, divisor = b >= 0, 2 * a * theta
    smooth = 2 * rest * a / torch.where(plus, b + root, 1)
    v = torch.where(plus, smooth, (root - b) / torch.where(plus, 1, divisor))
    shift = start - end + width * theta * (v - sigma)
    near = torch.where(first, (v - sigma) / (1 + sigma), shift / torch.where(first, 1, y))
    return near, shift, 1 / _slope(theta * (1 + v), sigma, left, right)


def _slope(xi: Tensor, sigma: Tensor, left: Tensor, right: Tensor) -> Tensor:
    eta = 1 - xi
    D = 1 + sigma + (left + right - 2 * sigma) * xi * eta
    slopes = 1 + right * xi**2 + 2 * sigma * xi * eta + left * eta**2
    return (1 + sigma) ** 2 * slopes / D**2
