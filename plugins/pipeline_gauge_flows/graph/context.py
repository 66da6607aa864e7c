"""Tables of one layer on one lattice: its active links, and frozen paths beside them."""

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from pipeline_gauge_flows.data.lattice import Lattice
from pipeline_gauge_flows.graph.frozen_paths import FrozenPaths, find_frozen_paths
from pipeline_gauge_flows.graph.masks import Update


@dataclass(frozen=True)
class Context:
    """Active links of a layer and frozen paths, on one device.

    Attributes:
        lattice: The lattice.
        mask: True for active links, (D, V) bool.
        active: Numbers mu V + x of the active links in ascending order, (n_active,) int64.
        paths: Plaquette paths, and optionally rectangle paths, without active links.
    """

    lattice: Lattice
    mask: Tensor
    active: Tensor
    paths: FrozenPaths


def make_context(
    update: Update,
    lattice: Lattice,
    device: torch.device | None = None,
    *,
    rectangles: bool = False,
) -> Context:
    """Return the tables of an update; equal ones are made once.

    Args:
        update: Update with the active links.
        lattice: The lattice.
        device: Device of the tables; None for the CPU.
        rectangles: Append the paths of rectangles.
    """
    return _make_context(update.first, lattice, device or torch.device("cpu"), rectangles)


@lru_cache(maxsize=1024)
@torch.inference_mode(False)
def _make_context(
    update: Update, lattice: Lattice, device: torch.device, rectangles: bool
) -> Context:
    mask = update.find_active(lattice)
    active = mask.flatten().nonzero()[:, 0]
    paths = find_frozen_paths(mask, active, lattice, rectangles=rectangles)
    return Context(lattice, mask.to(device), active.to(device), paths.to(device))


def find_frozen_numbers(
    update: Update, dimension: int, *, rectangles: bool = False
) -> tuple[int, ...]:
    """Return `FrozenPaths.numbers`, which do not depend on the extents."""
    lattice = Lattice((4,) * dimension, 2)
    return make_context(update, lattice, rectangles=rectangles).paths.numbers
