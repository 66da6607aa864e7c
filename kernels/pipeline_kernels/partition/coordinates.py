"""Coordinates of atoms along the axes of a cell of any shape, periodic or not."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]

DECIMALS = 9  # of fractional coordinates: atoms of one lattice plane must tie


@dataclass(frozen=True, eq=False)
class PlaneCoordinates:
    """Atoms in coordinates whose differences are distances between planes.

    Axis `d` is normal to the plane of the other two cell vectors. Two atoms within the cutoff
    differ by at most the cutoff along each axis, whatever the shape of the cell.

    Attributes:
        coordinates: `(n_atoms, 3)` Å, from 0 to `extent`.
        extent: Perpendicular width of the cell along periodic axes, extent of the atoms along
            others, `(3,)` Å. The cell has short vectors of the same lattice, so that
            the result does not depend on the skew of the given cell.
        periodic: True if the two ends of an axis meet, `(3,)`. A gap at least as wide as the
            cutoff ends an axis, so that a slab with vacuum is not periodic along its normal.
        cutoff: Longest edge in Å.
    """

    coordinates: Floats
    extent: Floats
    periodic: NDArray[np.bool_]
    cutoff: float

    @classmethod
    def of(
        cls, positions: ArrayLike, cell: ArrayLike, pbc: ArrayLike, cutoff: float
    ) -> PlaneCoordinates:
        """Wrap the atoms into the cell, made of the lattice's short vectors, and find gaps.

        Args:
            positions: `(n_atoms, 3)` Å.
            cell: Cell vectors as rows, `(3, 3)` Å; rows of directions that are not periodic are
                not read and may be zero.
            pbc: True for periodic directions, `(3,)`.
            cutoff: Longest edge in Å.

        Raises:
            ValueError: A shape or a number is wrong, or the periodic vectors span no volume.
        """
        positions, cell, pbc = _check_inputs(positions, cell, pbc, cutoff)
        vectors = _complete_cell(cell, pbc)
        widths = 1 / np.linalg.norm(np.linalg.inv(vectors), axis=0)
        fractional = np.round(positions @ np.linalg.inv(vectors), DECIMALS)
        fractional[:, pbc] %= 1.0
        coordinates = fractional * widths
        extent, periodic = widths.copy(), pbc.copy()
        for axis in range(3):
            low, extent[axis], periodic[axis] = _find_ends(
                coordinates[:, axis], widths[axis], bool(pbc[axis]), cutoff
            )
            coordinates[:, axis] -= low
            if pbc[axis]:
                coordinates[:, axis] %= widths[axis]
        return cls(coordinates, extent, periodic, cutoff)

    def open_axes(self, weights: Floats) -> PlaneCoordinates:
        """Return the same with periodic axes begun at the weighted median of the atoms."""
        coordinates = self.coordinates.copy()
        for axis in np.flatnonzero(self.periodic):
            order = np.argsort(coordinates[:, axis], kind="stable")
            summed = np.cumsum(weights[order])
            median = order[np.searchsorted(summed, summed[-1] / 2)]
            shifted = coordinates[:, axis] - coordinates[median, axis]
            coordinates[:, axis] = np.where(shifted < 0, shifted + self.extent[axis], shifted)
        return PlaneCoordinates(coordinates, self.extent, self.periodic, self.cutoff)

    def order_atoms(self) -> Numbers:
        """Return the place of each atom along each axis, `(3, n_atoms)`.

        Atoms on one plane follow the other axes, so that a cut through them is straight too.
        """
        x, y, z = self.coordinates.T
        ranks = np.empty((3, len(x)), np.int64)
        for axis, keys in enumerate([(z, y, x), (z, x, y), (y, x, z)]):
            ranks[axis, np.lexsort(keys)] = np.arange(len(x))
        return ranks

    def count_reach(self, lengths: Floats) -> Numbers:
        """Count the parts of these lengths that a cutoff spans, as `lengths`."""
        return np.ceil(self.cutoff / np.maximum(lengths, 1e-3)).astype(np.int64)


def _check_inputs(
    positions: ArrayLike, cell: ArrayLike, pbc: ArrayLike, cutoff: float
) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    positions, cell = np.asarray(positions, np.float64), np.asarray(cell, np.float64)
    pbc = np.asarray(pbc, np.bool_)
    shapes = (positions.shape[1:], cell.shape, pbc.shape)
    if positions.ndim != 2 or shapes != ((3,), (3, 3), (3,)):
        raise ValueError(
            "positions, cell, pbc: expected shapes (n_atoms, 3), (3, 3) and (3,), "
            f"got {positions.shape}, {cell.shape} and {pbc.shape}"
        )
    if not (np.isfinite(positions).all() and np.isfinite(cell).all()):
        raise ValueError("positions, cell: not all are finite; check the structure")
    if not 0 < cutoff < np.inf:
        raise ValueError(f"cutoff: expected the longest edge in Å, a positive number, got {cutoff}")
    return positions, cell, pbc


def _complete_cell(cell: Floats, pbc: NDArray[np.bool_]) -> Floats:
    """Return the cell with unit vectors normal to all others where it is not periodic."""
    periodic = cell[pbc]
    _, sizes, directions = np.linalg.svd(periodic)
    if len(periodic) and sizes.min() < 1e-6 * max(sizes.max(), 1e-6):
        raise ValueError(
            f"cell: the vectors of the periodic directions span no volume, {periodic.tolist()}; "
            "correct the cell or pbc"
        )
    whole = cell.copy()
    whole[pbc] = _reduce_vectors(periodic)
    whole[~pbc] = directions[len(periodic) :]
    return whole


def _reduce_vectors(vectors: Floats) -> Floats:
    """Return vectors of the same lattice that are short, so that its faces lie far apart."""
    vectors, changed = vectors.copy(), True
    while changed:
        changed = False
        for one, other in permutations(range(len(vectors)), 2):
            overlap = vectors[one] @ vectors[other] / (vectors[one] @ vectors[one])
            if abs(overlap) > 0.5 + 1e-9:
                vectors[other] -= np.round(overlap) * vectors[one]
                changed = True
    return vectors


def _find_ends(
    values: Floats, width: float, periodic: bool, cutoff: float
) -> tuple[float, float, bool]:
    """Return the origin and length of an axis, and True if it is periodic."""
    rising = np.sort(values)
    if not len(values):
        return 0.0, width, periodic
    if not periodic:
        return rising[0], rising[-1] - rising[0], False
    gaps = np.diff(rising, append=rising[0] + width)
    widest = int(np.argmax(gaps))
    if gaps[widest] < cutoff:
        return 0.0, width, True
    return rising[(widest + 1) % len(rising)], width - gaps[widest], False
