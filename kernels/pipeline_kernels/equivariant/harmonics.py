"""Real solid harmonics, which on unit vectors are the spherical harmonics."""

from collections.abc import Iterator
from functools import cache
from math import factorial, sqrt
from typing import Any

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
    result: Tensor = _Harmonics.apply(vectors, lmax)  # type: ignore[no-untyped-call]
    return result


class _Harmonics(torch.autograd.Function):
    """Derivatives are harmonics of one degree less: few operations, of any order."""

    @staticmethod
    def forward(ctx: Any, vectors: Tensor, lmax: int) -> Tensor:
        rows = _evaluate(vectors, lmax)
        ctx.save_for_backward(rows)
        ctx.lmax = lmax
        return rows

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        (rows,) = ctx.saved_tensors
        D = torch.from_numpy(compute_harmonic_slopes(ctx.lmax)).to(rows)
        slopes = (rows @ D.flatten(0, 1).T).unflatten(1, (3, -1))  # (n, 3, components)
        return (slopes * g[:, None]).sum(2), None


def _evaluate(vectors: Tensor, lmax: int) -> Tensor:
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
    """Return the factors of each degree and order, including P_m^m, by degree, then m."""
    norms = np.zeros((lmax + 1, lmax + 1))
    for degree in range(lmax + 1):
        for m in range(degree + 1):
            ratio = factorial(degree - m) / factorial(degree + m)
            odd = factorial(2 * m) / (2**m * factorial(m))  # (2 m - 1)!!
            norms[degree, m] = odd * sqrt((2 * degree + 1) * ratio * (2 if m else 1))
    return norms


@cache
def compute_harmonic_slopes(lmax: int) -> np.ndarray:
    """Return D with `dR/dx_k = D[k] R` for the harmonics R of a vector, float64.

    With C = r^l P_l^m cos(m phi) / (l + m)! and S the same of the sine,

        dC_lm/dz = C_(l-1)m,  dC_lm/dx = (C_(l-1)(m-1) - C_(l-1)(m+1)) / 2,
                              dC_lm/dy = -(S_(l-1)(m-1) + S_(l-1)(m+1)) / 2,
        dS_lm/dz = S_(l-1)m,  dS_lm/dx = (S_(l-1)(m-1) - S_(l-1)(m+1)) / 2,
                              dS_lm/dy = (C_(l-1)(m-1) + C_(l-1)(m+1)) / 2,

    where m - 1 = -1 stands for C_(-1) = -C_1 and S_(-1) = S_1 (M. A. Epton and B. Dembart, SIAM J.
    Sci. Comput. 16, 865 (1995), of the complex functions).
    """
    n = (lmax + 1) ** 2
    D = np.zeros((3, n, n))
    for degree in range(1, lmax + 1):
        for order in range(-degree, degree + 1):
            for axis, m, is_sine, factor in _list_slopes(abs(order), order < 0):
                if m >= degree or (is_sine and m == 0):
                    continue  # zero by definition
                row = degree * (degree + 1) + order
                below = degree * (degree - 1) + (-m if is_sine else m)
                scale = _scale(degree, abs(order)) / _scale(degree - 1, m)
                D[axis, row, below] += factor * scale
    return D


def _list_slopes(m: int, is_sine: bool) -> Iterator[tuple[int, int, bool, float]]:
    """Yield the terms of derivatives of C or S: axis, order and kind of a function, its factor."""
    yield 2, m, is_sine, 1.0
    turned = 0.5 if is_sine else -0.5
    for axis, kind, factors in ((0, is_sine, (0.5, -0.5)), (1, not is_sine, (turned, turned))):
        for order, factor in zip((m - 1, m + 1), factors, strict=True):
            yield axis, abs(order), kind, -factor if order < 0 and not kind else factor


def _scale(degree: int, m: int) -> float:
    """Return the factors of C and S in `compute_harmonic_slopes`."""
    ratio = factorial(degree - m) / factorial(degree + m)
    return sqrt((2 * degree + 1) * ratio * (2 if m else 1)) * factorial(degree + m)
