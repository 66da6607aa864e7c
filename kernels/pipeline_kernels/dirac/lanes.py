"""Vector lanes of a lattice: sub-lattices first, then fields.

A lattice is cut in halves along its directions as long as lanes are left and the parts have even
extents, so that a site has the same parity in all of them. One field then fills a vector, and a hop
reads one site, whose lanes are permuted where it leaves the part. Lanes that are left hold further
fields.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import torch
from torch import Tensor


@dataclass(frozen=True)
class Lanes:
    """Sites of the lanes, and their neighbours.

    Attributes:
        n_parts: sub-lattices of a configuration; lanes are (fields, parts).
        sites: numbers of the sites of each parity, (2, half, n_parts) int64.
        neighbours: places of x + mu and x - mu in the half of the other parity, times 2, plus 1
            where lanes change, (2, half, D, 2) int64.
        permutations: the lane from which each comes then, (D, 2, n_lanes) int64.
    """

    n_parts: int
    sites: Tensor
    neighbours: Tensor
    permutations: Tensor

    @property
    def half(self) -> int:
        """Sites of one parity in a sub-lattice."""
        return self.sites.shape[1]


@lru_cache(maxsize=64)
@torch.inference_mode(False)
def make_lanes(extents: tuple[int, ...], n_lanes: int) -> Lanes:
    """Cut a lattice of even extents for vectors of `n_lanes` lanes."""
    cuts = choose_cuts(extents, n_lanes)
    inner = [extent // cut for extent, cut in zip(extents, cuts, strict=True)]
    x, part = _list_coordinates(inner), _list_coordinates(cuts)  # (n, D), (n_parts, D)
    # sites with an even sum of coordinates, then the others, each in the order of their numbers
    x = x[(x.sum(1) % 2).argsort(stable=True)].reshape(2, -1, len(extents))
    everywhere = x[:, :, None] + part * torch.tensor(inner)  # (2, half, n_parts, D)
    ways = []
    for step in (1, -1):
        moved = x[:, :, None] + step * torch.eye(len(extents), dtype=torch.int64)
        wrapped = moved % torch.tensor(inner)  # (2, half, D, D)
        leaves = (moved != wrapped).any(-1) & (torch.tensor(cuts) > 1)
        # numbers 2 n and 2 n + 1 are of different parities, since extents are even
        ways.append(_number(wrapped, inner) // 2 * 2 + leaves)
    return Lanes(
        n_parts=len(part),
        sites=_number(everywhere, extents).contiguous(),
        neighbours=torch.stack(ways, dim=-1).contiguous(),
        permutations=_permute(part, cuts, n_lanes).contiguous(),
    )


def choose_cuts(extents: Sequence[int], n_lanes: int) -> list[int]:
    """Return the number of parts of each direction: powers of two, at most `n_lanes` in all."""
    cuts = [1] * len(extents)
    while 2 * prod(cuts) <= n_lanes:
        inner = [extent // cut for extent, cut in zip(extents, cuts, strict=True)]
        ready = [mu for mu, extent in enumerate(inner) if extent % 4 == 0]
        if not ready:
            break
        cuts[max(ready, key=inner.__getitem__)] *= 2
    return cuts


def _permute(part: Tensor, cuts: Sequence[int], n_lanes: int) -> Tensor:
    """Return the lane of the next sub-lattice in each direction, ahead and behind."""
    directions = torch.eye(len(cuts), dtype=torch.int64)
    steps = torch.stack([directions, -directions], dim=1)  # (D, 2, D)
    others = _number((part + steps[:, :, None]) % torch.tensor(cuts), cuts)  # (D, 2, n_parts)
    fields = torch.arange(n_lanes // len(part)) * len(part)
    return (fields[:, None] + others[:, :, None]).flatten(2)


def _list_coordinates(extents: Sequence[int]) -> Tensor:
    axes = [torch.arange(extent) for extent in extents]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1).reshape(-1, len(extents))


def _number(coordinates: Tensor, extents: Sequence[int]) -> Tensor:
    """Return the numbers of sites row by row."""
    numbers = torch.zeros(coordinates.shape[:-1], dtype=torch.int64)
    for mu, extent in enumerate(extents):
        numbers = numbers * extent + coordinates[..., mu]
    return numbers
