"""Products of frozen links along paths from the start of each active link to its end.

Such a product transforms like the active link, so that it can close a loop with it, or be compared
with or added to other such products. A path is a tuple of steps: mu for a forward step along
direction mu, -1 - mu for a backward one, as in `loops.multiply_path`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from pipeline_gauge_flows.data.lattice import Lattice
from pipeline_gauge_flows.graph.masks import Update, find_active_links
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


@dataclass(frozen=True)
class FrozenPaths:
    """Paths of one kind that contain frozen links only.

    Attributes:
        groups: Paths in order.
        numbers: Index of each among all paths of its kind, (n_paths); the same at all active links.
    """

    groups: tuple[PathGroup, ...]
    numbers: tuple[int, ...]

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
    update: Update, lattice: Lattice, device: torch.device, *, rectangles: bool = False
) -> FrozenPaths:
    """Return the plaquette paths, and optionally rectangle paths, without active links.

    Args:
        update: Update with the active links.
        lattice: The lattice.
        device: Device of the tables.
        rectangles: Append the paths of rectangles.
    """
    return _find_frozen_paths(update.first, lattice, device, rectangles)


@lru_cache(maxsize=1024)
@torch.inference_mode(False)
def _find_frozen_paths(
    update: Update, lattice: Lattice, device: torch.device, rectangles: bool
) -> FrozenPaths:
    active = update.find_active(lattice).flatten()
    links = find_active_links(update, lattice, torch.device("cpu"))
    paths = [_list_paths(mu, lattice.dimension, rectangles) for mu in range(lattice.dimension)]
    by_length: dict[int, list[tuple[int, Tensor]]] = {}
    for number in range(len(paths[0])):
        table = _find_links(links, [along[number] for along in paths], lattice)
        is_active = active[table].any(dim=0)  # (n_active,)
        assert is_active.all() or not is_active.any(), (update, number)
        if not is_active.any():
            by_length.setdefault(len(table), []).append((number, table))
    groups, kept = [], []
    for columns in by_length.values():
        backwards = [[step < 0 for step in paths[0][number]] for number, _ in columns]
        tables = torch.stack([table for _, table in columns], dim=2)
        groups.append(PathGroup(tables.to(device), torch.tensor(backwards, device=device).T))
        kept += [number for number, _ in columns]
    return FrozenPaths(tuple(groups), tuple(kept))


def find_frozen_numbers(
    update: Update, dimension: int, *, rectangles: bool = False
) -> tuple[int, ...]:
    """Return `FrozenPaths.numbers`, which do not depend on the extents."""
    lattice = Lattice((4,) * dimension, 2)
    return find_frozen_paths(update, lattice, torch.device("cpu"), rectangles=rectangles).numbers


def _list_paths(mu: int, dimension: int, rectangles: bool) -> list[Path]:
    more = list_rectangle_paths(mu, dimension) if rectangles else []
    return list_plaquette_paths(mu, dimension) + more


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
