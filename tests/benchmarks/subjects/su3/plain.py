"""What kernels of SU(3) are measured against: plain PyTorch on torch.linalg."""

import math
from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor

from pipeline_kernels.su3.splines import MIN_SLOPE, MIN_WIDTH

BINS: Final = 8
TURN: Final = 2 * math.pi
Spline = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Gives values and slopes at places, for parameters of each."""


def compute_eig_angles(U: Tensor) -> tuple[Tensor, Tensor]:
    """Return angles in the canonical cell, and eigenvectors."""
    values, vectors = torch.linalg.eig(U)
    angles, order = values.angle().double().sort(-1, descending=True)
    vectors = torch.take_along_dim(vectors, order[:, None, :], -1)
    turns = (angles.sum(-1, keepdim=True) / TURN).round().long()
    # One turn less for the first where the sum is a turn, one more for the last where minus one.
    place = torch.arange(3, device=U.device)
    shift = ((turns < 0) & (place == 2)).double() - ((turns > 0) & (place == 0)).double()
    angles = angles + TURN * shift
    rolled = torch.remainder(place + turns, 3)
    return angles.gather(-1, rolled), torch.take_along_dim(vectors, rolled[:, None, :], -1)


def apply_plain_spline(x: Tensor, parameters: Tensor) -> tuple[Tensor, Tensor]:
    """Return a rational-quadratic spline and its slope (Durkan et al., arXiv:1906.04032, eq. 4)."""
    widths, heights = (
        MIN_WIDTH + (1 - BINS * MIN_WIDTH) * parameters[:, part].softmax(-1)
        for part in (slice(BINS), slice(BINS, 2 * BINS))
    )
    shift = math.log(math.expm1(1 - MIN_SLOPE))
    slopes = MIN_SLOPE + torch.nn.functional.softplus(parameters[:, 2 * BINS :] + shift)
    starts, ends = widths.cumsum(-1) - widths, heights.cumsum(-1) - heights
    k = (starts[:, 1:] <= x[:, None]).sum(-1, keepdim=True)
    X, Y, w, h, left, right = (
        y.gather(-1, k)[:, 0] for y in (starts, ends, widths, heights, slopes, slopes[:, 1:])
    )
    s, xi = h / w, (x - X) / w
    eta = 1 - xi
    D = s + (left + right - 2 * s) * xi * eta
    y = Y + h * (s * xi**2 + left * xi * eta) / D
    return y, s**2 * (right * xi**2 + 2 * s * xi * eta + left * eta**2) / D**2


def apply_eig_map(
    L: Tensor, parameters: Tensor, apply_spline: Spline = apply_plain_spline
) -> tuple[Tensor, Tensor]:
    """Return W and log-determinants of the spectral map by eigenvectors."""
    angles, vectors = compute_eig_angles(L)
    a, b = angles[:, 0] - angles[:, 1], angles[:, 1] - angles[:, 2]
    s, r = (a + b) / TURN, a / (a + b)
    s_new, s_slope = apply_spline(s, parameters[:, 0])
    r_new, r_slope = apply_spline(r, parameters[:, 1])
    a_new, b_new = TURN * s_new * r_new, TURN * s_new * (1 - r_new)
    moved = torch.stack([2 * a_new + b_new, b_new - a_new, -a_new - 2 * b_new], -1) / 3
    W = (vectors * torch.exp(1j * (moved - angles)).to(L.dtype)[:, None, :]) @ vectors.mH
    log_det = (s_slope * r_slope * s_new / s).log()
    for old, new in ((a, a_new), (b, b_new), (a + b, a_new + b_new)):
        log_det = log_det + 2 * ((new / 2).sin() / (old / 2).sin()).log()
    return W, log_det


def project_by_svd(M: Tensor) -> Tensor:
    """Return the unitary factor by singular values, over the root of its determinant."""
    left, _, right = torch.linalg.svd(M)
    U = left @ right
    angle = torch.linalg.det(U).angle() / M.shape[-1]
    return U * torch.polar(torch.ones_like(angle), -angle)[..., None, None]
