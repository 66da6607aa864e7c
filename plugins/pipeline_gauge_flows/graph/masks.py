"""Masks: patterns of the active links of each layer, which leave enough loops of frozen links.

| pattern   | active links of a layer                                          | layers of a sweep |
|-----------|------------------------------------------------------------------|-------------------|
| direction | U_mu(x) of one mu at all x of one parity, sum of x_rho mod 2:    | 2 D               |
|           | the mask M2 of arXiv:2401.10874, and the direction updates of    |                   |
|           | arXiv:2305.02402                                                 |                   |
| m4        | U_mu(x) of one mu where 2 x_mu + sum of the other x_nu is the    | 4 D               |
|           | same mod 4: the mask M4 of arXiv:2401.10874                      |                   |
| location  | all D links that start at sites of one class x mod 2, or in      | 2^D               |
|           | every other sweep all that end there; arXiv:2305.02402           |                   |

The meaning of M2, M4 and location updates in these papers is inferred from the numbers of
layers in arXiv:2502.00263: M2, M4, M2 and M4 make its 48 with 8 and 16, and 2^4 sites its 16.

A sweep moves each link once. With `direction` and `m4` no plaquette of an active link contains a
second one; with `m4` no 1x2 rectangle does either, so that active links decouple in actions with
rectangles, too. With `location` this holds for one of the two plaquettes in each plane of an
active link: the one on the other side of its site.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor

from pipeline_gauge_flows.data.lattice import Lattice
from pipeline_gauge_flows.options import Pattern

_PERIODS: Final[dict[Pattern, int]] = {"direction": 2, "location": 2, "m4": 4}


@dataclass(frozen=True)
class Update:
    """Active links of one layer.

    Attributes:
        pattern: Pattern of the active links.
        sweep: Number of the sweep among those with this pattern, counted from 0.
        step: Number of the layer in its sweep.
        plaquette: Active loop of a layer with fixed loops: its index in
            `frozen_paths.list_plaquette_paths`.
    """

    pattern: Pattern
    sweep: int
    step: int
    plaquette: int = 0

    @property
    def first(self) -> Update:
        """The first update with the same active links, for which tables are cached."""
        sweep = self.sweep % 2 if self.pattern == "location" else 0
        return replace(self, sweep=sweep, plaquette=0)

    def find_active(self, lattice: Lattice) -> Tensor:
        """Return the mask of active links, (D, V) bool.

        Raises:
            ValueError: The pattern does not close around the lattice.
        """
        check_extents(self.pattern, lattice)
        x, n = lattice.coordinates, lattice.dimension
        active = torch.zeros(n, lattice.volume, dtype=torch.bool)
        if self.pattern == "location":
            corner = torch.tensor([self.step >> mu & 1 for mu in range(n)])
            here = (x % 2 == corner).all(dim=1)
            for mu in range(n):
                active[mu] = here[lattice.forward[mu]] if self.sweep % 2 else here
        else:
            period = _PERIODS[self.pattern]
            mu, phase = divmod(self.step, period)
            phases = x.sum(dim=1) + (x[:, mu] if self.pattern == "m4" else 0)
            active[mu] = phases % period == phase
        return active


def count_steps(pattern: Pattern, dimension: int) -> int:
    """Return the number of layers of a sweep."""
    return 2**dimension if pattern == "location" else _PERIODS[pattern] * dimension


def list_updates(blocks: Iterable[tuple[Pattern, int]], dimension: int) -> list[Update]:
    """Return the updates of a flow, layer by layer.

    Args:
        blocks: Patterns in order, each with its number of sweeps.
        dimension: D.
    """
    updates: list[Update] = []
    sweeps = dict.fromkeys(_PERIODS, 0)
    for pattern, n_sweeps in blocks:
        for _ in range(n_sweeps):
            number = sum(sweeps.values())
            for step in range(count_steps(pattern, dimension)):
                plaquette = _choose_plaquette(pattern, sweeps[pattern], step, number, dimension)
                updates.append(Update(pattern, sweeps[pattern], step, plaquette))
            sweeps[pattern] += 1
    return updates


def _choose_plaquette(pattern: Pattern, sweep: int, step: int, number: int, dimension: int) -> int:
    """Return the plaquette of a layer, chosen such that a few sweeps cover all of them.

    Sweep n takes the plane of mu and nu = mu + 1 + n mod (D - 1), modulo D, on the side of x + nu,
    the next D - 1 sweeps on the side of x - nu. All links of a direction take the same one, so that
    a plane is active at all sites in one sweep; two sweeps cover all planes, and in two and three
    dimensions one does. With `location`, whose frozen plaquettes lie on one side in each sweep, the
    plane changes from layer to layer instead.

    Args:
        pattern: Pattern of the layer.
        sweep: Number of the sweep among those with this pattern.
        step: Number of the layer in the sweep.
        number: Number of the sweep among all.
        dimension: D.
    """
    n_planes = dimension - 1
    if pattern == "location":
        return (sweep + step) % n_planes + (0 if sweep % 2 else n_planes)
    mu = step // _PERIODS[pattern]
    nu = (mu + 1 + number % n_planes) % dimension
    side = number // n_planes % 2
    return side * n_planes + nu - (nu > mu)


def check_extents(pattern: Pattern, lattice: Lattice) -> None:
    """Check that a pattern closes around a periodic lattice.

    Raises:
        ValueError: It does not close.
    """
    period = _PERIODS[pattern]
    if any(extent % period for extent in lattice.extents):
        raise ValueError(
            f"extents {list(lattice.extents)}: the mask {pattern!r} repeats after {period} sites, "
            f"so that active links would meet where the lattice closes; make every extent a "
            f"multiple of {period}"
            + (", or use the mask 'direction' or 'location'" if period == 4 else "")
        )
