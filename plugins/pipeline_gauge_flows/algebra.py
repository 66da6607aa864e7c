"""Linear maps of the algebra su(N) as real matrices of N^2 - 1 dimensions."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import torch
from torch import Tensor

_TERMS: Final = 26
"""Of the series of (1 - exp(-A)) / A, enough for 1e-16 where no eigenvalue exceeds 2."""


@lru_cache(maxsize=8)
@torch.inference_mode(False)
def make_basis(n_colours: int, device: torch.device) -> Tensor:
    """Return antihermitian traceless T_a with tr T_a^dag T_b = delta_ab, (N^2 - 1, N, N)."""
    generators = []
    for i in range(n_colours):
        for j in range(i):
            unit = torch.zeros(n_colours, n_colours, dtype=torch.complex128)
            unit[i, j] = 1
            generators += [unit - unit.mT, 1j * (unit + unit.mT)]
    for k in range(1, n_colours):
        entries = torch.tensor([1.0] * k + [-float(k)] + [0.0] * (n_colours - k - 1))
        generators.append(1j * torch.diag(entries).to(torch.complex128))
    return torch.stack([one / one.abs().square().sum().sqrt() for one in generators]).to(device)


@lru_cache(maxsize=8)
@torch.inference_mode(False)
def _make_product_table(n_colours: int, device: torch.device) -> Tensor:
    """Return T_a T_b as (N^2, (N^2 - 1)^2): the last axis is (a, b), the first that of L^T."""
    generators = make_basis(n_colours, device)
    products = torch.einsum("aij,bjk->ikab", generators, generators)
    return products.reshape(n_colours**2, -1)


def compute_components(matrices: Tensor) -> Tensor:
    """Return the components in the algebra of (..., N, N), (..., N^2 - 1) float64."""
    generators = make_basis(matrices.shape[-1], matrices.device)
    # Re tr T_a^dag m = Re sum conj(T_a) m
    return (matrices.flatten(-2) @ generators.flatten(1).mH).real


def make_element(vector: Tensor, n_colours: int) -> Tensor:
    """Return the matrix (..., N, N) with components (..., N^2 - 1)."""
    generators = make_basis(n_colours, vector.device)
    flat = vector.to(generators.dtype) @ generators.flatten(1)
    return flat.reshape(*vector.shape[:-1], n_colours, n_colours)


def compute_left_product(loops: Tensor) -> Tensor:
    """Return the map X -> part of X L in the algebra.

    Args:
        loops: L, (..., N, N) complex128.

    Returns:
        (..., N^2 - 1, N^2 - 1) float64.
    """
    n_colours = loops.shape[-1]
    n = n_colours**2 - 1
    # Re tr T_a^dag T_b L = - Re sum_ij (T_a T_b)_ij L_ji
    table = _make_product_table(n_colours, loops.device)
    return -(loops.mT.flatten(-2) @ table).real.reshape(*loops.shape[:-2], n, n)


def compute_adjoint(vector: Tensor, n_colours: int) -> Tensor:
    """Return the map X -> [G, X], (..., n, n), of G with components (..., n = N^2 - 1)."""
    generator = make_element(vector, n_colours)
    # [G, T_b] = -(T_b G - its adjoint): twice the part of -T_b G in the algebra.
    return -2 * compute_left_product(generator)


def compute_exponential_slope(adjoint_map: Tensor, maps: Tensor) -> Tensor:
    """Return (1 - exp(-A)) / A times M: how exp(G) turns as G moves along M, from the right.

    d exp(G) = exp(G) (1 - exp(-ad_G)) / ad_G dG.

    Args:
        adjoint_map: A = ad_G, (..., n, n), no eigenvalue beyond 2.
        maps: M, (..., n, n).
    """
    slope = maps
    for order in range(_TERMS, 1, -1):
        slope = maps - adjoint_map @ slope / order
    return slope
