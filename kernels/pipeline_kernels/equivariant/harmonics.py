"""Real solid harmonics, which on unit vectors are the spherical harmonics."""

from functools import cache
from math import factorial, sqrt

import numpy as np
import torch
from torch import Tensor


def solid_harmonics(vectors: Tensor, lmax: int) -> Tensor:
    """Calculate the regular solid harmonics about the z axis, of norm² (2 l + 1) r^(2 l).

    Polynomials of x, y and z, hence smooth at zero, too. The powers (x + i y)^m give what depends
    on the angle about the axis, the recursion of the associated Legendre functions (NIST Digital
    Library of Mathematical Functions, 14.10.3, times powers of r) the rest.

    Args:
        vectors: `(n, 3)` in the order x, y, z.
        lmax: highest degree.

    Returns:
        Degrees 0 to `lmax`, orders m = -l, ..., l of each, `(n, (lmax + 1)^2)`: the order of
        `compute_edge_frames`, and that of e3nn for vectors in the order y, z, x.
    """
    x, y, z = vectors.unbind(1)
    square, norms = (vectors * vectors).sum(1), compute_harmonic_norms(lmax)
    rows: list[Tensor] = [x] * (lmax + 1) ** 2
    cosine, sine = torch.ones_like(x), torch.zeros_like(x)
    for m in range(lmax + 1):
        if m:
            cosine, sine = x * cosine - y * sine, x * sine + y * cosine
        below, legendre = torch.zeros_like(z), torch.ones_like(z)
        for degree in range(m, lmax + 1):
            if degree > m:
                above = (2 * degree - 1) * z * legendre - (degree + m - 1) * square * below
                below, legendre = legendre, above / (degree - m)
            middle, scaled = degree * (degree + 1), float(norms[degree, m]) * legendre
            rows[middle + m] = scaled * cosine
            if m:
                rows[middle - m] = scaled * sine
    return torch.stack(rows, dim=1)


@cache
def compute_harmonic_norms(lmax: int) -> np.ndarray:
    """Return the factors of each degree and order, those of P_m^m included, by degree, then m."""
    norms = np.zeros((lmax + 1, lmax + 1))
    for degree in range(lmax + 1):
        for m in range(degree + 1):
            ratio = factorial(degree - m) / factorial(degree + m)
            odd = factorial(2 * m) / (2**m * factorial(m))  # (2 m - 1)!!
            norms[degree, m] = odd * sqrt((2 * degree + 1) * ratio * (2 if m else 1))
    return norms
