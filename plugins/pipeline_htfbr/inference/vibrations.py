"""Harmonic frequencies at stationary points.

With F the Hessian by the variables of the surface and G = J M⁻¹ Jᵀ, where J holds the derivatives
of the variables by the positions and M the masses, the squared angular frequencies are the
eigenvalues of G F (E. B. Wilson, J. Chem. Phys. 7, 1047 (1939)): the non-zero eigenvalues of the
mass-weighted Cartesian Hessian: neither translation nor rotation changes a variable.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pipeline_core.units import BOHR, DALTON, HARTREE, find_factor
from pipeline_htfbr.data.geometry import differentiate_variables, find_positions
from pipeline_htfbr.data.molecule import Molecule
from pipeline_htfbr.data.points import Coordinate

Floats = NDArray[np.float64]

_WAVENUMBER = BOHR * np.sqrt(HARTREE / DALTON) / find_factor("energy", "cm^-1")
"""sqrt(eV/(Å² Da)) as a wavenumber: in atomic units a frequency is an energy."""


def compute_frequencies(
    x: Floats, hessian: Floats, molecule: Molecule, coordinates: Sequence[Coordinate]
) -> Floats:
    """Return the harmonic frequencies at a stationary point.

    Args:
        x: The point, (d,).
        hessian: Second derivatives of the energy there, (d, d) eV per units of the coordinates.
        molecule: The variables as functions of atomic positions.
        coordinates: The variables.

    Returns:
        (d,) cm⁻¹ in rising order, imaginary ones as negative numbers.

    Raises:
        ValueError: No geometry with these variables is found, or the molecule is linear there.
    """
    positions = find_positions(x, molecule, coordinates)
    _, by_positions = differentiate_variables(positions, molecule, coordinates)
    by_root = by_positions / np.sqrt(np.repeat(molecule.masses, 3))
    values, vectors = np.linalg.eigh(by_root @ by_root.T)
    root = vectors * np.sqrt(np.clip(values, 0, None)) @ vectors.T
    squared: Floats = np.linalg.eigvalsh(root @ hessian @ root)
    frequencies: Floats = np.sign(squared) * np.sqrt(np.abs(squared)) * _WAVENUMBER
    return frequencies
