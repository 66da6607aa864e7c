"""Sites, halves of the lattice and signs at its boundary, from its extents."""

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Final

import torch
from torch import Tensor

DIMENSIONS: Final = (2, 4)
EVEN, ODD, ALL = 0, 1, 2
"""Sites that a result stands on: one parity, or all."""

Where = tuple[Sequence[int], Sequence[int], int, bool]
"""Hops: extents, signs of the boundary, parity of the result, whether the adjoint is meant."""

How = tuple[Tensor | None, Sequence[float], Sequence[int], Sequence[int], int, bool]
"""Links as C reads them, if it does, factors of hops and of other spinors, then `Where`."""


def check_extents(extents: Sequence[int], boundary: Sequence[int]) -> None:
    """Refuse extents and signs that no operator is defined for.

    Raises:
        ValueError: if so.
    """
    if len(extents) not in DIMENSIONS or any(extent < 2 or extent % 2 for extent in extents):
        raise ValueError(
            f"extents: expected 2 or 4 even numbers, so that sites are even or odd, got "
            f"{tuple(extents)}"
        )
    if len(boundary) != len(extents) or any(sign not in (-1, 1) for sign in boundary):
        raise ValueError(
            f"boundary: expected 1 or -1 for each of {len(extents)} directions, got "
            f"{tuple(boundary)}"
        )


def choose_boundary(extents: Sequence[int]) -> tuple[int, ...]:
    """Return the signs of a boundary that is antiperiodic in time, periodic in space."""
    return (-1, *([1] * (len(extents) - 1)))


@lru_cache(maxsize=64)
@torch.inference_mode(False)
def find_parities(extents: tuple[int, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the numbers of the even sites and of the odd sites, each (V / 2,) int64."""
    parity = torch.zeros(extents, dtype=torch.int64)
    for mu, extent in enumerate(extents):
        shape = [1] * len(extents)
        shape[mu] = extent
        parity = parity + torch.arange(extent).reshape(shape)
    flat = parity.flatten() % 2
    even, odd = ((flat == p).nonzero()[:, 0].to(device) for p in (EVEN, ODD))
    return even, odd


@lru_cache(maxsize=64)
@torch.inference_mode(False)
def find_neighbours(extents: tuple[int, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the numbers of the sites x + mu and x - mu, each (D, V) int64."""
    sites = torch.arange(prod(extents)).reshape(extents)
    ahead, behind = (
        torch.stack([sites.roll(shift, mu).flatten() for mu in range(len(extents))])
        for shift in (-1, 1)
    )
    return ahead.to(device), behind.to(device)


def apply_signs(links: Tensor, extents: Sequence[int], boundary: Sequence[int]) -> Tensor:
    """Return links `(batch, D, V, N, N)` times the signs of the boundary, where they leave it."""
    if all(sign == 1 for sign in boundary):
        return links
    signed = links.clone()
    for mu, sign in enumerate(boundary):
        if sign == -1:
            signed[:, mu].unflatten(1, list(extents)).select(1 + mu, -1).neg_()
    return signed


def split(psi: Tensor, extents: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return the halves of spinors on even and on odd sites.

    Args:
        psi: `(..., V, S, N)`.
        extents: sites along each direction, all even.

    Returns:
        Two tensors `(..., V / 2, S, N)`.
    """
    check_extents(extents, choose_boundary(extents))
    even, odd = find_parities(tuple(extents), psi.device)
    return psi.index_select(-3, even), psi.index_select(-3, odd)


def join(even: Tensor, odd: Tensor, extents: Sequence[int]) -> Tensor:
    """Return spinors on all sites, `(..., V, S, N)`, from the halves that `split` gives."""
    check_extents(extents, choose_boundary(extents))
    numbers = torch.cat(find_parities(tuple(extents), even.device))
    return torch.cat([even, odd], dim=-3).index_select(-3, numbers.argsort())
