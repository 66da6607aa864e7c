"""Domain of a fitted surface, and its symmetry-equivalent points."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline_htfbr.data.molecule import Molecule, NormalModes
from pipeline_htfbr.data.points import Coordinate
from pipeline_htfbr.graph.basis import Leaf

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

ROUNDING = 1e-9
"""Tolerance for rounding beyond the bounds, relative to the length of a domain."""


@dataclass(frozen=True)
class SurfaceBox:
    """Domain of a surface: a box with periodic coordinates and mirror planes.

    Attributes:
        coordinates: The variables.
        lower: (d,) lower bounds.
        upper: (d,) upper bounds.
        periods: (d,) periods of the surface, infinite for coordinates that are not periodic.
        dihedral: (d,) True for a dihedral angle; the mirror image of a molecule has
            the opposite ones and the same energy.
        mirror: (d,) True if the surface is even about both ends of the domain, half a period long.
    """

    coordinates: tuple[Coordinate, ...]
    lower: Floats
    upper: Floats
    periods: Floats
    dihedral: Mask
    mirror: Mask

    @property
    def length(self) -> Floats:
        """Extent along each coordinate, (d,)."""
        return self.upper - self.lower

    @property
    def full(self) -> Mask:
        """Mask of coordinates whose domain is a whole period, and so has no bounds, (d,)."""
        return self.length >= self.periods * (1 - ROUNDING)

    def find_image(self, x: Floats) -> tuple[Floats, Floats]:
        """Return signs and shifts, (d,) each, such that signs * x + shifts lies in the domain.

        Raises:
            ValueError: Neither the point nor its mirror image does.
        """
        mirrored = np.where(self.dihedral, -1.0, 1.0)
        for signs in (np.ones(len(x)), mirrored):
            shifts = self._compute_shifts(signs * x)
            if not self.is_outside(signs * x + shifts).any():
                return signs, shifts
        folded = x + self._compute_shifts(x)
        worst = int(np.argmax(self.is_outside(folded)))
        one = self.coordinates[worst]
        unit = "" if one.unit == "1" else f" {one.unit}"
        raise ValueError(
            f"coordinate {one.name} is {folded[worst]:.6g}{unit}, outside of the domain "
            f"[{self.lower[worst]:.6g}, {self.upper[worst]:.6g}] of the fitted surface, beyond "
            "which it is undefined; stay inside, or fit the surface to points of a larger domain"
        )

    def is_outside(self, x: Floats) -> Mask:
        """Return the mask of coordinates of points (..., d) that lie outside, (..., d)."""
        room = ROUNDING * self.length
        beyond: Mask = (x < self.lower - room) | (x > self.upper + room) | np.isnan(x)
        return beyond & ~self.full

    def fold(self, x: Floats) -> Floats:
        """Return points (n, d) in the box: symmetry-equivalent ones, else the nearest."""
        x = x + self._compute_shifts(x)
        x = np.where(self.mirror, self.upper - np.abs(x - self.upper), x)
        return np.where(self.full, x, np.clip(x, self.lower, self.upper))

    def is_on_mirror(self, x: Floats) -> Mask:
        """Return the mask of coordinates along which points (n, d) lie on a mirror plane, (n, d).

        There the derivative along the coordinate vanishes by symmetry.
        """
        near = 1e-5 * self.length
        return self.mirror & ((x - self.lower < near) | (self.upper - x < near))

    def measure_distances(self, x: Floats, y: Floats) -> Floats:
        """Return largest differences between points (..., d), relative to the domain, (...)."""
        largest: Floats = np.abs(self.compute_difference(y, x) / self.length).max(-1)
        return largest

    def compute_difference(self, x: Floats, y: Floats) -> Floats:
        """Return y - x of points (..., d), the shorter way round along periodic coordinates."""
        turns = np.round((y - x) / self.periods)
        shortest: Floats = y - x - turns * np.where(np.isfinite(self.periods), self.periods, 0)
        return shortest

    def _compute_shifts(self, x: Floats) -> Floats:
        """Return whole periods that move points to the first period above the lower bounds."""
        room = ROUNDING * self.length
        finite = np.isfinite(self.periods)
        turns: Floats = np.floor((x - self.lower + room) / self.periods)
        return np.where(finite, -turns * np.where(finite, self.periods, 0), 0.0)


def make_domain(
    coordinates: Sequence[Coordinate], leaves: Sequence[Leaf], molecule: Molecule | None
) -> SurfaceBox:
    """Return the domain of a fitted surface."""
    lower, upper = np.array([one.lower for one in leaves]), np.array([one.upper for one in leaves])
    periods = np.array([c.period or np.inf for c in coordinates])
    variables = molecule.variables if molecule else ()
    internal = () if isinstance(variables, NormalModes) else variables
    dihedral = np.array([one.kind == "dihedral" for one in internal] or [False] * len(leaves))
    # A lone dihedral angle is even with any basis functions, others only with cosines.
    even = np.array([leaf.family == "cosine" for leaf in leaves])
    even |= dihedral & (dihedral.sum() == 1)
    from_plane = np.abs(lower / periods * 2 - np.round(lower / periods * 2))
    half = np.abs((upper - lower) / periods - 0.5)
    mirror = even & np.isfinite(periods) & (from_plane < ROUNDING) & (half < ROUNDING)
    return SurfaceBox(tuple(coordinates), lower, upper, periods, dihedral, mirror)
