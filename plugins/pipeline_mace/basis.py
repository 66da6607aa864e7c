"""Functions of an edge: radial basis and spherical harmonics."""

from __future__ import annotations

from math import pi, sqrt

import torch
from torch import Tensor, nn


class RadialBasis(nn.Module):
    """Bessel functions under a polynomial envelope (arXiv:2003.03123, eqs. 7 and 8).

        sqrt(2/c) sin(n π r/c)/r u(r/c),
        u(x) = 1 − (p+1)(p+2)/2 x^p + p(p+2) x^(p+1) − p(p+1)/2 x^(p+2)

    Args:
        count: Number of functions.
        cutoff: c, Å.
        power: p.
    """

    frequencies: Tensor

    def __init__(self, count: int, cutoff: float, power: int) -> None:
        super().__init__()
        self.cutoff, self.power = cutoff, power
        frequencies = torch.arange(1, count + 1, dtype=torch.float64) * pi / cutoff
        self.register_buffer("frequencies", frequencies, persistent=False)

    def forward(self, distance: Tensor) -> Tensor:
        """Return the functions at distances (n_edges,) Å, (n_edges, count)."""
        r = distance[:, None]
        waves = torch.sin(self.frequencies.to(r.dtype) * r) / r
        return sqrt(2 / self.cutoff) * waves * self.envelope(distance)[:, None]

    def envelope(self, distance: Tensor) -> Tensor:
        """Return u, (n_edges,)."""
        p, x = self.power, distance / self.cutoff
        inside = (
            1
            - (p + 1) * (p + 2) / 2 * x**p
            + p * (p + 2) * x ** (p + 1)
            - p * (p + 1) / 2 * x ** (p + 2)
        )
        return torch.where(x < 1, inside, torch.zeros_like(inside))


def spherical_harmonics(vectors: Tensor, lmax: int) -> Tensor:
    """Return real spherical harmonics of directions, with norm² 2 l + 1 for degree l.

    Components are ordered as those of e3nn: m = -l, ..., l about the axis y, hence (x, y, z) for
    l = 1.

    Args:
        vectors: (n_edges, 3), of any length but zero.
        lmax: Highest degree, at most 3.

    Returns:
        (n_edges, (lmax + 1)²).
    """
    x, y, z = (vectors / torch.linalg.vector_norm(vectors, dim=1, keepdim=True)).unbind(1)
    rows = [torch.ones_like(x)]
    if lmax >= 1:
        rows += [sqrt(3) * x, sqrt(3) * y, sqrt(3) * z]
    across = x * x + z * z
    twice, square = 2 * x * z, z * z - x * x
    if lmax >= 2:
        rows += [
            sqrt(15) / 2 * twice,
            sqrt(15) * x * y,
            sqrt(5) * (y * y - across / 2),
            sqrt(15) * y * z,
            sqrt(15) / 2 * square,
        ]
    if lmax >= 3:
        low = 4 * y * y - across
        rows += [
            sqrt(35 / 8) * (twice * z + square * x),
            sqrt(105) / 2 * twice * y,
            sqrt(21 / 8) * low * x,
            sqrt(7) / 2 * y * (2 * y * y - 3 * across),
            sqrt(21 / 8) * low * z,
            sqrt(105) / 2 * square * y,
            sqrt(35 / 8) * (square * z - twice * x),
        ]
    return torch.stack(rows, dim=1)
