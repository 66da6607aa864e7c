"""Supercells by the distance of their faces, and symmetry-inequivalent sites."""

import math
from collections.abc import Sequence

from ase import Atoms
from ase.spacegroup.symmetrize import check_symmetry

from pipeline_atoms.config.limits import ATOM_BYTES
from pipeline_atoms.properties.equation_of_state import require_crystal
from pipeline_core.system.memory import require_free


def count_copies(atoms: Atoms, length: float) -> tuple[int, int, int]:
    """Return the numbers of copies of a cell for a distance `length`, Å, of opposite faces.

    Raises:
        ValueError: It is not a crystal, or there is no memory for so many copies.
    """
    require_crystal(atoms)
    # A cell slightly shorter than the length after its relaxation is not doubled.
    a, b, c = (max(1, math.ceil(length * k - 0.02)) for k in atoms.cell.reciprocal().lengths())
    n_atoms = len(atoms) * a * b * c
    require_free(n_atoms * ATOM_BYTES, f"{n_atoms} atoms", "lower supercell_length")
    return a, b, c


def list_sites(atoms: Atoms, tolerance: float, elements: Sequence[str] | None) -> dict[int, str]:
    """Return the first atom of each set of symmetry-equivalent atoms, with a name.

    Args:
        atoms: A crystal.
        tolerance: Symmetry tolerance, Å.
        elements: Elements of the atoms; None for all.

    Raises:
        ValueError: It has none of the elements.
    """
    sites = sorted({int(first) for first in check_symmetry(atoms, tolerance).equivalent_atoms})
    wanted = {
        site: f"{atoms.symbols[site]} {site}"
        for site in sites
        if elements is None or atoms.symbols[site] in elements
    }
    if not wanted:
        raise ValueError(f"has no atom of {', '.join(elements or [])}; correct the key elements")
    return wanted
