"""Functions of an edge: radial basis and spherical harmonics."""

from __future__ import annotations

from math import pi, sqrt

import torch
from torch import Tensor, nn

from pipeline_kernels.equivariant.harmonics import solid_harmonics


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


def compute_spherical_harmonics(vectors: Tensor, lmax: int) -> Tensor:
    """Return real spherical harmonics of directions, with norm² 2 l + 1 for degree l.

    Components are ordered as those of e3nn: m = -l, ..., l about the axis y, hence (x, y, z) for
    l = 1.

    Args:
        vectors: (n_edges, 3), of any length but zero.
        lmax: Highest degree.

    Returns:
        (n_edges, (lmax + 1)²).
    """
    directions = vectors / torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
    # Those about z of (z, x, y) are those about y.
    return solid_harmonics(directions.roll(1, dims=1), lmax)
