"""Eigenvalues and eigenprojectors of SU(2) and SU(3) matrices in plain PyTorch.

No eigenvector is calculated. Of three eigenvalues the isolated one, opposite to the smallest
distance, comes from the characteristic polynomial of A = U - tr(U) / 3 and Newton's method, where
both are well conditioned,

    x^3 - 3 p x - 2 q = 0,    p = tr(A^2) / 6,    q = tr(A^3) / 6,
    P = (A^2 + x A + x^2 - 3 p) / (3 (x^2 - p)).

What remains is a normal 2x2 block in disguise, B = (z_1 - z_2) / 2 (P_1 - P_2). The norm of B, and
not a difference of roots, gives the distance of its eigenvalues: its error stays at rounding,
however small it is.
"""

from typing import Any

import torch
from torch import Tensor

TURN = 2 * torch.pi
# Rows of `projectors` in descending order of angles, for the three places of an isolated angle;
# before: the upper and the lower one of the close pair, the isolated one.
ORDERS = ((2, 0, 1), (0, 1, 2), (1, 2, 0))


def decompose(U: Tensor) -> tuple[Tensor, Tensor]:
    """Decompose `U = sum_k exp(i theta_k) P_k`; differentiable any number of times.

    Args:
        U: special unitary matrices `(n, N, N)`.

    Returns:
        Angles `(n, N)` in the canonical cell, float64, and Hermitian projectors `(n, N, N, N)`,
        complex128. Projectors of equal eigenvalues are any that add up to theirs.
    """
    angles, projectors = _Spectrum.apply(U)  # type: ignore[no-untyped-call]  # torch has no types
    return angles, projectors


class _Spectrum(torch.autograd.Function):
    """The derivative by perturbation theory, which is made of angles and projectors again."""

    @staticmethod
    def forward(U: Tensor) -> tuple[Tensor, Tensor]:
        return _find_spectrum(U)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: tuple[Tensor, Tensor]) -> None:
        ctx.dtype = inputs[0].dtype
        ctx.save_for_backward(*output)

    @staticmethod
    def backward(ctx: Any, by_angles: Tensor, by_projectors: Tensor) -> Tensor:
        angles, P = ctx.saved_tensors
        z = torch.polar(torch.ones_like(angles), angles)
        by_angles = by_angles - by_angles.mean(-1, keepdim=True)
        total = torch.einsum("nk,nkij->nij", 1j * by_angles * z, P)
        for k in range(angles.shape[1]):
            for j in range(k):
                mean, half = (angles[:, k] + angles[:, j]) / 2, (angles[:, k] - angles[:, j]) / 2
                distance = 2j * half.sin() * torch.polar(torch.ones_like(mean), mean)
                same = half.sin() == 0
                factor = (~same / distance.masked_fill(same, 1).conj_physical())[:, None, None]
                inner = factor * (by_projectors[:, k] - by_projectors[:, j])
                total = total + P[:, k] @ inner @ P[:, j] + P[:, j] @ inner @ P[:, k]
        return total.to(ctx.dtype)


def _find_spectrum(U: Tensor) -> tuple[Tensor, Tensor]:
    n_colours, noise = U.shape[-1], 64 * torch.finfo(U.dtype).eps
    U = U.to(torch.complex128)
    one = torch.eye(n_colours, dtype=U.dtype, device=U.device)
    m = _trace(U) / n_colours
    A = U - m[:, None, None] * one
    if n_colours == 2:
        sine = torch.linalg.matrix_norm(A) / 2**0.5
        angle = torch.atan2(sine, m.real)
        difference = _normalize(A, 1j * sine)
        projectors = torch.stack([one + difference, one - difference], 1) / 2
        return torch.stack([angle, -angle], -1), projectors

    x, P, close = _find_isolated(A, noise)
    rest = A + x[:, None, None] * (one / 2 - 1.5 * P)
    sine = torch.linalg.matrix_norm(rest) / 2**0.5  # of half the angle between the pair
    centre = m - x / 2  # cosine of that times the phase of the pair
    z = m + x
    half, t = torch.atan2(sine, centre.abs()), torch.atan2(z.imag, z.real)
    gaps, case = _compute_gaps(half, t, centre)
    a, b = gaps[:, 0], gaps[:, 1]
    angles = torch.stack([2 * a + b, b - a, -a - 2 * b], -1) / 3

    difference = _normalize(rest, 1j * sine.masked_fill(close, 0) * centre / centre.abs())
    pair = one - P
    projectors = torch.stack([(pair + difference) / 2, (pair - difference) / 2, P], 1)
    order = torch.tensor(ORDERS, device=U.device)[case]
    return angles, torch.take_along_dim(projectors, order[:, :, None, None], 1)


def _find_isolated(A: Tensor, noise: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return the eigenvalue of traceless 3x3 matrices that is opposite to the closest pair.

    And its projector, and whether all three are equal up to noise: then these are zero and a third
    of the unit matrix.
    """
    A2 = A @ A
    p, q = _trace(A2) / 6, (A2 * A.mT).sum((-1, -2)) / 6
    root = (q * q - p**3).sqrt()
    cube = torch.where((q + root).abs() > (q - root).abs(), q + root, q - root)
    phases = torch.polar(torch.ones(3), TURN * torch.arange(3) / 3).to(A)
    radius = cube.abs().pow(1 / 3)
    r = torch.polar(radius, cube.angle() / 3)[:, None] * phases
    x = r + torch.where(r == 0, 0, p[:, None] / torch.where(r == 0, 1, r))
    farthest = (x * x - p[:, None]).abs().argmax(-1, keepdim=True)
    x = x.gather(-1, farthest)[:, 0]
    slope = 3 * (x * x - p)
    close = slope.abs() < noise**2
    x = x.masked_fill(close, 0)
    for _ in range(2):
        x = x - torch.where(close, 0, x**3 - 3 * p * x - 2 * q) / slope.masked_fill(close, 1)
        slope = 3 * (x * x - p)
    one = torch.eye(3, dtype=A.dtype, device=A.device)
    xA = x[:, None, None] * A
    product = A2 + xA + (x * x - 3 * p)[:, None, None] * one
    P = product / slope.masked_fill(close, 1)[:, None, None]
    return x, torch.where(close[:, None, None], one / 3, P), close


def _compute_gaps(half: Tensor, t: Tensor, centre: Tensor) -> tuple[Tensor, Tensor]:
    """Return theta_1 - theta_2 and theta_2 - theta_3 from a pair and the isolated angle t.

    Also the row of `ORDERS`. The sum of the angles is zero with a pair around -t / 2, all of it
    beside t, or with one half of it at pi - t / 2 and one at -pi - t / 2, t between them.
    """
    z = torch.polar(torch.ones_like(t), t)
    root = torch.where(z.real > 0, 1 + z, 1j * t.sign() * (1 - z))  # along exp(i t / 2)
    opposite = (centre * root).real < 0
    split = opposite & (t.abs() <= TURN / 3)
    t = torch.where(opposite & ~split, t - t.sign() * TURN, t)
    far = 1.5 * t.abs() - half
    above = torch.stack([far, 2 * half], -1)
    between = torch.pi - half[:, None] + 1.5 * torch.stack([-t, t], -1)
    gaps = torch.where((t >= 0)[:, None], above, above.flip(-1))
    gaps = torch.where(split[:, None], between, gaps)
    return gaps.clamp(min=0), torch.where(split, 2, (t < 0).long())


def _normalize(block: Tensor, half_distance: Tensor) -> Tensor:
    """Return `P_1 - P_2` from `(z_1 - z_2) / 2 (P_1 - P_2)`, zero where they are equal."""
    equal = half_distance == 0
    difference = block / half_distance.masked_fill(equal, 1)[:, None, None]
    return torch.where(equal[:, None, None], 0, difference)


def _trace(A: Tensor) -> Tensor:
    return A.diagonal(dim1=-2, dim2=-1).sum(-1)
