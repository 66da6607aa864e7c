"""Exact surfaces, which can be evaluated and compared at any point."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline_htfbr.data.molecule import Molecule
from pipeline_htfbr.data.points import Coordinate

Floats = NDArray[np.float64]


class ExactSurface(Protocol):
    """A surface that gives energy and gradient at any point of its domain."""

    @property
    def coordinates(self) -> tuple[Coordinate, ...]:
        """The variables, with domains where the surface has them."""
        ...

    @property
    def molecule(self) -> Molecule:
        """Atoms, and the variables as functions of their positions."""
        ...

    @property
    def grid(self) -> tuple[int, ...] | None:
        """Points along each coordinate, ends included, of the grid used in papers; or None."""
        ...

    def energies(self, x: Floats) -> Floats:
        """Return the energies at points (n, d), (n,) eV."""
        ...

    def gradients(self, x: Floats) -> Floats:
        """Return the gradients at points (n, d), (n, d) eV per unit of the coordinate."""
        ...


def find_exact_surface(name: str) -> ExactSurface | None:
    """Return the surface named by a dataset; None if it names none or cannot be evaluated here.

    A surface cannot be evaluated if a package that it needs is not installed.
    """
    match name:
        case "hono":
            from pipeline_htfbr.data.hono import HONO

            return HONO()
        case "ethene_xtb":
            from pipeline_htfbr.data.ethene import load_ethene

            return load_ethene()
    return None
