"""Atoms in a box, seen from a corner, without perspective."""

from colorsys import hls_to_rgb
from itertools import product
from typing import Any, Final

import numpy as np
from ase.geometry import complete_cell
from matplotlib.axes import Axes
from matplotlib.collections import EllipseCollection
from numpy.typing import ArrayLike, NDArray

from pipeline_core.figures import style

Floats = NDArray[np.float64]

_TURN, _TILT = np.radians(-55.0), np.radians(22.0)
_GOLDEN: Final = 0.6180339887498949
_MARGIN: Final = 1.0
"""Distance between atoms and their box where it is not periodic, Å."""
_LIGHTNESS: Final = (0.42, 0.6, 0.75)
RASTER_DPI: Final = 250
"""Resolution of atoms in vector graphics."""


def project(points: ArrayLike) -> Floats:
    """Return coordinates to the right, up, and towards the viewer, (n, 3), of points (n, 3)."""
    x, y, z = np.asarray(points, dtype=np.float64).T
    across = x * np.cos(_TURN) - y * np.sin(_TURN)
    away = x * np.sin(_TURN) + y * np.cos(_TURN)
    up = z * np.cos(_TILT) + away * np.sin(_TILT)
    return np.stack([across, up, z * np.sin(_TILT) - away * np.cos(_TILT)], axis=1)


def wrap_into_box(positions: Floats, cell: Floats, pbc: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Wrap atoms into a box: the cell in periodic directions, around all atoms in others.

    Returns:
        Positions (n, 3) and edges of the box (3, 3), whose corner is the origin.
    """
    cell = complete_cell(cell)
    places = positions @ np.linalg.inv(cell)
    margin = _MARGIN / np.linalg.norm(cell, axis=1)
    low = np.where(pbc, 0, places.min(axis=0) - margin)
    width = np.where(pbc, 1, np.ptp(places, axis=0) + 2 * margin)
    box = cell * width[:, None]
    return ((places - low) / width) % 1.0 @ box, box


def find_near_faces(points: Floats, cell: Floats, depth: float) -> NDArray[np.bool_]:
    """Return the mask of points within a depth of the visible faces of a cell."""
    fractional = (points @ np.linalg.inv(cell)) % 1.0
    widths = 1 / np.linalg.norm(np.linalg.inv(cell), axis=0)
    near = np.zeros(len(points), dtype=bool)
    for axis in range(3):
        normal = np.cross(cell[(axis + 1) % 3], cell[(axis + 2) % 3])
        outwards = project(normal[None])[0, 2] * np.sign(normal @ cell[axis]) > 0
        distance = (1 - fractional[:, axis] if outwards else fractional[:, axis]) * widths[axis]
        near |= distance < depth
    return near


def draw_atoms(axes: Axes, points: Floats, colours: Any, diameters: ArrayLike) -> None:
    """Draw points as discs of given diameters, Å, near ones over far ones."""
    places = project(points)
    order = np.argsort(places[:, 2], kind="stable")
    across = np.broadcast_to(diameters, len(points))[order]
    discs = EllipseCollection(
        across,
        across,
        np.zeros(len(order)),
        units="xy",
        offsets=places[order, :2],
        offset_transform=axes.transData,
        facecolors=np.asarray(colours)[order],
        edgecolors="white",
        linewidths=0.15,
        rasterized=True,
    )
    axes.add_collection(discs)
    axes.update_datalim(places[:, :2])
    axes.autoscale_view()
    axes.set_aspect("equal")
    axes.set_axis_off()


def draw_box(axes: Axes, cell: Floats) -> None:
    """Draw the visible edges of a cell."""
    corners = np.array(list(product((0, 1), repeat=3)))
    places = project(corners @ cell)
    hidden = int(np.argmin(places[:, 2]))
    for i, j in product(range(8), repeat=2):
        joined = i < j and np.abs(corners[i] - corners[j]).sum() == 1
        if joined and hidden not in (i, j):
            axes.plot(*places[[i, j], :2].T, color=style.INK, linewidth=0.6)


def make_part_colours(n: int) -> list[tuple[float, float, float]]:
    """Return colours of parts, far apart for consecutive parts, which often touch."""
    return [hls_to_rgb((k * _GOLDEN) % 1.0, _LIGHTNESS[k % 3], 0.75) for k in range(n)]
