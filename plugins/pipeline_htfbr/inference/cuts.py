"""Cuts through a surface: one or two coordinates vary, the others stay at the minimum."""

import json
from collections.abc import Sequence

import h5py
import numpy as np
from numpy.typing import NDArray

from pipeline_htfbr.data.points import Coordinate
from pipeline_htfbr.inference.domain import SurfaceBox
from pipeline_htfbr.inference.landscape import Landscape

Floats = NDArray[np.float64]


def choose_cuts(
    cuts: Sequence[Sequence[str]], coordinates: Sequence[Coordinate]
) -> list[tuple[int, ...]]:
    """Return the numbers of the coordinates of each cut; by default one cut per coordinate.

    Raises:
        ValueError: A cut names no coordinate, the same one twice, more than two, or an unknown one.
    """
    names = [one.name for one in coordinates]
    for cut in cuts:
        if len(cut) not in (1, 2) or len(set(cut)) < len(cut):
            raise ValueError(f"infer.cuts: {list(cut)}; name one coordinate, or two different ones")
        unknown = [name for name in cut if name not in names]
        if unknown:
            raise ValueError(
                f"infer.cuts: {unknown[0]!r} is not a coordinate of the surface; choose from "
                f"{', '.join(names)}"
            )
    return [tuple(map(names.index, cut)) for cut in cuts or [[name] for name in names]]


def write_cut(
    group: h5py.Group,
    cut: Sequence[int],
    through: Floats,
    n_points: int,
    domain: SurfaceBox,
    landscapes: dict[str, Landscape],
) -> None:
    """Write one cut: `axis_0`, `axis_1` and, in their shape, the energy of each surface (eV).

    Args:
        group: Target group of the file.
        cut: Numbers of the coordinates that vary.
        through: Values of all coordinates, (d,).
        n_points: Points along each axis, ends of the domain included.
        domain: Domain of the surface.
        landscapes: The surfaces by name.
    """
    axes = [np.linspace(domain.lower[mu], domain.upper[mu], n_points) for mu in cut]
    grid = np.meshgrid(*axes, indexing="ij")
    x = np.tile(through, (grid[0].size, 1))
    x[:, list(cut)] = np.stack([one.ravel() for one in grid], axis=1)
    group.attrs["coordinates"] = json.dumps([domain.coordinates[mu].name for mu in cut])
    for i, axis in enumerate(axes):
        group.create_dataset(f"axis_{i}", data=axis)
    for name, landscape in landscapes.items():
        group.create_dataset(name, data=landscape.energies(x).reshape(grid[0].shape))
