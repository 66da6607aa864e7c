"""Basis functions of distances and angles, with learnable frequencies.

They are evaluated in the precision of the geometry, which is double: in single precision the sine
of 31 pi r / cutoff has an error of 1e-5, and that error dominates the noise of the forces.
"""

import math
from typing import Any, Final

import torch
from torch import Tensor, nn

SHRINKAGE: Final = 1 - 1e-6
"""Factor on cosines, as in version 0.3.0: keeps the derivative of the arc cosine finite for
collinear bonds."""


class RadialBasis(nn.Module):
    """Spherical Bessel functions of order zero under a polynomial envelope.

        e_n(r) = sqrt(2 / c) sin(f_n x) / r · u(x),  x = r / c,  f_n = n pi before training,
        u(x) = 1 - (p+1)(p+2)/2 x^p + p(p+2) x^(p+1) - p(p+1)/2 x^(p+2) below 1, else 0

    Gasteiger et al., ICLR 2020, arXiv:2003.03123, equations (7) and (8).

    | symbol | argument      |
    |--------|---------------|
    | c      | `cutoff`, Å   |
    | p      | `power`       |
    | f_n    | `frequencies` |

    Args:
        n_functions: Number of functions.
        cutoff: Å.
        power: Power of the envelope; the larger, the closer to the cutoff it falls.
    """

    def __init__(self, n_functions: int, cutoff: float, power: int) -> None:
        super().__init__()
        self.cutoff, self.power = cutoff, power
        self.frequencies = nn.Parameter(math.pi * torch.arange(1, n_functions + 1))

    def forward(self, lengths: Tensor) -> Tensor:
        """Expand `lengths` (n,) in Å to (n, n_functions), in their precision."""
        x = (lengths / self.cutoff)[:, None]
        envelope = compute_envelope(x, self.power)
        waves = torch.sin(x * self.frequencies.to(x.dtype))
        return waves * (envelope * math.sqrt(2 / self.cutoff) / lengths[:, None])


def compute_envelope(x: Tensor, power: int) -> Tensor:
    """Return u(x) of `RadialBasis`: 1 at 0, 0 from 1 on, twice continuously differentiable.

    Args:
        x: Distances over the cutoff, of any shape.
        power: p.
    """
    p = power
    polynomial = (p + 1) * (p + 2) / 2 - x * (p * (p + 2) - x * (p * (p + 1) / 2))
    return torch.where(x < 1, 1 - x**p * polynomial, 0)


class AngularBasis(nn.Module):
    """Fourier series of an angle: 1 / sqrt 2, sin(k_n a), cos(k_n a), all over sqrt pi.

    Deng et al., Nat. Mach. Intell. 5, 1031 (2023), Methods; k_n = n before training.

    Args:
        n_functions: Number of functions, odd.
    """

    def __init__(self, n_functions: int) -> None:
        super().__init__()
        self.frequencies = nn.Parameter(torch.arange(1.0, n_functions // 2 + 1))

    def forward(self, angles: Tensor) -> Tensor:
        """Expand `angles` (n,) in radian to (n, n_functions), in their precision."""
        phases = angles[:, None] * self.frequencies.to(angles.dtype)
        constant = torch.full_like(angles[:, None], math.sqrt(0.5))
        waves = torch.cat([constant, *_SineCosine.apply(phases)], dim=1)  # type: ignore[no-untyped-call]
        return waves / math.sqrt(math.pi)


class _SineCosine(torch.autograd.Function):
    """Sine and cosine with shared derivatives: neither is calculated again in the backward pass."""

    @staticmethod
    def forward(ctx: Any, phases: Tensor) -> tuple[Tensor, Tensor]:
        waves = phases.sin(), phases.cos()
        ctx.save_for_backward(*waves)
        return waves

    @staticmethod
    def backward(ctx: Any, by_sine: Tensor, by_cosine: Tensor) -> Tensor:
        sine, cosine = ctx.saved_tensors
        gradient: Tensor = by_sine * cosine - by_cosine * sine
        return gradient


def compute_angles(one: Tensor, other: Tensor) -> Tensor:
    """Return the angles between unit vectors, (n,), radian.

    Args:
        one: (n, 3).
        other: (n, 3).
    """
    return torch.acos((one * other).sum(1) * SHRINKAGE)
