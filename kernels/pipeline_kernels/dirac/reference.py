"""Hops of Wilson's Dirac operator and their derivative, in plain PyTorch."""

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from pipeline_kernels.dirac.geometry import (
    ALL,
    How,
    Where,
    apply_signs,
    find_neighbours,
    find_parities,
)


@lru_cache(maxsize=8)
@torch.inference_mode(False)
def make_gammas(dimension: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return gamma_mu, (D, S, S), and the diagonal of gamma5, (S,) float64.

    With Pauli's matrices s_k: gamma_0 = s_1, gamma_1 = s_2, gamma5 = s_3 in 2 dimensions. In 4,

        gamma_0 = (0 1; 1 0),  gamma_k = (0 -i s_k; i s_k 0),
        gamma5 = gamma_1 gamma_2 gamma_3 gamma_0.
    """
    pauli = torch.tensor(
        [[[0, 1], [1, 0]], [[0, -1j], [1j, 0]], [[1, 0], [0, -1]]], dtype=torch.complex128
    )
    one = torch.eye(dimension // 2, dtype=torch.complex128)
    corners = [one, *(-1j * (pauli if dimension == 4 else one[None]))]  # upper right
    gammas = torch.zeros(dimension, dimension, dimension, dtype=torch.complex128)
    half = dimension // 2
    for gamma, corner in zip(gammas, corners, strict=True):
        gamma[:half, half:] = corner
        gamma[half:, :half] = corner.mH
    gamma5 = torch.ones(dimension, dtype=torch.float64)
    gamma5[half:] = -1
    return gammas.to(device), gamma5.to(device)


def multiply_diagonal(psi: Tensor, a: float, b: float) -> Tensor:
    """Return (a + i b gamma5) psi, of spinors `(..., S, N)`."""
    if b == 0:
        return psi if a == 1 else psi * a
    upper, lower = psi.chunk(2, dim=-2)
    return torch.cat([complex(a, b) * upper, complex(a, -b) * lower], dim=-2)


def combine_hops(psi: Tensor, other: Tensor | None, links: Tensor, *how: *How) -> Tensor:
    """Return (a + i b gamma5) H psi + (c + i d gamma5) other.

    Args:
        psi: spinors `(batch, n_rhs, V, S, N)`; of one parity those on the other half.
        other: spinors where the result is, or None.
        links: `(batch, D, V, N, N)`.
        how: links as C reads them, not needed here; a, b, c, d; extents, signs of the boundary,
            parity of the result, and whether to take H^dagger = gamma5 H gamma5 in place of H.
    """
    a, b, c, d = how[1]
    hopped = multiply_diagonal(_hop(psi, links, *how[2:]), a, b)
    return hopped if other is None else hopped + multiply_diagonal(other, c, d)


def _hop(psi: Tensor, links: Tensor, *where: *Where) -> Tensor:
    """Return H psi or H^dagger psi."""
    extents, boundary, parity, adjoint = where
    full = psi if parity == ALL else _embed(psi, extents, 1 - parity)
    signed = apply_signs(links, extents, boundary)
    total = torch.zeros_like(full)
    for mu, (ahead, behind, minus, plus) in enumerate(_list_directions(psi, extents, adjoint)):
        U = signed[:, mu]
        total = total + _transport(minus, U, full[:, :, ahead])
        total = total + _transport(plus, U.mT.conj_physical()[:, behind], full[:, :, behind])
    if parity == ALL:
        return total
    return total[:, :, find_parities(tuple(extents), psi.device)[parity]]


def hop_gradient(chi: Tensor, psi: Tensor, *where: *Where) -> Tensor:
    """Return the derivative of Re(chi^dagger H psi) by the links, `(batch, D, V, N, N)`.

        G_mu(x) = sum_s [ ((1 - gamma_mu) chi(x))_s psi(x+mu)_s^dagger
                        + ((1 + gamma_mu) psi(x))_s chi(x+mu)_s^dagger ],

    summed over right-hand sides. If links move as exp(t X) U, the derivative by t is
    Re tr(X U G^dagger).

    Args:
        chi: spinors where `combine_hops` has its result.
        psi: spinors that it takes.
        where: as there.
    """
    extents, boundary, parity, adjoint = where
    if parity != ALL:
        chi, psi = _embed(chi, extents, parity), _embed(psi, extents, 1 - parity)
    by_links = []
    for ahead, _, minus, plus in _list_directions(psi, extents, adjoint):
        left = torch.einsum("st,brxtj->brxsj", minus, chi)
        right = torch.einsum("st,brxtj->brxsj", plus, psi)
        by_links.append(
            torch.einsum("brxsi,brxsj->bxij", left, psi[:, :, ahead].conj())
            + torch.einsum("brxsi,brxsj->bxij", right, chi[:, :, ahead].conj())
        )
    return apply_signs(torch.stack(by_links, dim=1), extents, boundary)


def _list_directions(
    psi: Tensor, extents: Sequence[int], adjoint: bool
) -> list[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Return sites x + mu and x - mu, 1 - gamma_mu and 1 + gamma_mu of each direction.

    The last two change places for the adjoint.
    """
    gammas, _ = make_gammas(len(extents), psi.device)
    one, gammas = torch.eye(len(extents)).to(psi), gammas.to(psi.dtype)
    if adjoint:
        gammas = -gammas
    neighbours = find_neighbours(tuple(extents), psi.device)
    return [
        (ahead, behind, one - gamma, one + gamma)
        for ahead, behind, gamma in zip(*neighbours, gammas, strict=True)
    ]


def _transport(projector: Tensor, U: Tensor, psi: Tensor) -> Tensor:
    return torch.einsum("st,bxij,brxtj->brxsi", projector, U, psi)


def _embed(psi: Tensor, extents: Sequence[int], parity: int) -> Tensor:
    """Return spinors on all sites, zero off the parity."""
    sites = find_parities(tuple(extents), psi.device)[parity]
    full = psi.new_zeros(*psi.shape[:-3], 2 * psi.shape[-3], *psi.shape[-2:])
    return full.index_copy(-3, sites, psi)
