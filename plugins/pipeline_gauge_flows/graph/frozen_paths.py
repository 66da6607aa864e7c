"""Products of frozen links along paths from the start of each active link to its end.

Such a product transforms like the active link, so that it can close a loop with it, or be compared
with or added to other such products. A path is a tuple of steps: mu for a forward step along
direction mu, -1 - mu for a backward one, as in `loops.multiply_path`.
"""

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from pipeline_gauge_flows.data.lattice import Lattice
from pipeline_kernels.su3 import path_products

Path = tuple[int, ...]


@dataclass(frozen=True)
class PathGroup:
    """Paths of one length at all active links.

    Attributes:
        links: Number mu V + x of each link along the paths, (length, n_active, n_paths).
        backwards: True for links traversed backwards, (length, n_paths) bool.
    """

    links: Tensor
    backwards: Tensor

    def to(self, device: torch.device) -> Self:
        """Return the paths on a device."""
        return replace(self, links=self.links.to(device), backwards=self.backwards.to(device))


@dataclass(frozen=True)
class FrozenPaths:
    """Paths of one kind that contain frozen links only.

    Attributes:
        groups: Paths in order.
        numbers: Index of each among all paths of its kind, (n_paths); the same at all active links.
    """

    groups: tuple[PathGroup, ...]
    numbers: tuple[int, ...]

    def to(self, device: torch.device) -> Self:
        """Return the paths on a device."""
        return replace(self, groups=tuple(group.to(device) for group in self.groups))

    def multiply_links(self, links: Tensor) -> Tensor:
        """Return the products along the paths.

        Args:
            links: (batch, D V, N, N).

        Returns:
            (batch, n_active, n_paths, N, N).
        """
        products = [path_products(links, group.links, group.backwards) for group in self.groups]
        return torch.cat(products, dim=2) if len(products) > 1 else products[0]


def list_plaquette_paths(mu: int, dimension: int) -> list[Path]:
    """Return the paths that close a plaquette with U_mu(x), in the order of the staples.

    First R_nu, on the side of x + nu, then L_nu, on the side of x - nu, both by rising nu != mu.
    """
    others = [nu for nu in range(dimension) if nu != mu]
    sides = [(nu, -1 - nu) for nu in others] + [(-1 - nu, nu) for nu in others]
    return [(out, mu, back) for out, back in sides]


def list_rectangle_paths(mu: int, dimension: int) -> list[Path]:
    """Return the paths that close a 1x2 rectangle with U_mu(x).

    First two sites wide, then two links long, beyond the link and before it, each in the order of
    `list_plaquette_paths`.
    """
    sides = [(path[0], path[2]) for path in list_plaquette_paths(mu, dimension)]
    return [
        *((out, out, mu, back, back) for out, back in sides),
        *((out, mu, mu, back, -1 - mu) for out, back in sides),
        *((-1 - mu, out, mu, mu, back) for out, back in sides),
    ]


def find_frozen_paths(
    mask: Tensor, links: Tensor, lattice: Lattice, *, rectangles: bool
) -> FrozenPaths:
    """Return the plaquette paths, and optionally rectangle paths, without active links.

    Args:
        mask: True for active links, (D, V) bool.
        links: Numbers mu V + x of the active links, (n_active,).
        lattice: The lattice.
        rectangles: Append the paths of rectangles.
    """
    active = mask.flatten()
    paths = [list_plaquette_paths(mu, lattice.dimension) for mu in range(lattice.dimension)]
    if rectangles:
        for mu, along in enumerate(paths):
            along.extend(list_rectangle_paths(mu, lattice.dimension))
    by_length: dict[int, list[tuple[int, Tensor]]] = {}
    for number in range(len(paths[0])):
        table = _find_links(links, [along[number] for along in paths], lattice)
        is_active = active[table].any(dim=0)  # (n_active,)
        assert is_active.all() or not is_active.any(), number
        if not is_active.any():
            by_length.setdefault(len(table), []).append((number, table))
    groups, kept = [], []
    for columns in by_length.values():
        backwards = [[step < 0 for step in paths[0][number]] for number, _ in columns]
        tables = torch.stack([table for _, table in columns], dim=2)
        groups.append(PathGroup(tables, torch.tensor(backwards).T))
        kept += [number for number, _ in columns]
    return FrozenPaths(tuple(groups), tuple(kept))


def _find_links(links: Tensor, paths: list[Path], lattice: Lattice) -> Tensor:
    """Return the links along the paths of one number from some links, (length, n)."""
    volume = lattice.volume
    direction, site = links // volume, links % volume
    table = torch.empty(len(paths[0]), len(links), dtype=torch.int64)
    for mu, path in enumerate(paths):
        mine = direction == mu
        here = site[mine]
        for number, step in enumerate(path):
            rho = step if step >= 0 else -1 - step
            if step < 0:
                here = lattice.backward[rho, here]
            table[number, mine] = rho * volume + here
            if step >= 0:
                here = lattice.forward[rho, here]
    return table
