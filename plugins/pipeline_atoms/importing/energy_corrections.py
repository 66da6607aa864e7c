"""Corrections of the Materials Project to energies of density-functional theory.

Its set mixes PBE with PBE+U, and their energies are comparable only with corrections, which also
reduce the errors of anions: the scheme MP2020 of A. Wang et al., Sci. Rep. 11, 15496 (2021),
doi:10.1038/s41598-021-94550-5, as implemented in pymatgen. Potentials trained on MPtrj, such as
CHGNet, predict corrected energies.
"""

import warnings
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from ase.data import chemical_symbols
from numpy.typing import NDArray

_HUBBARD: Final = {
    "Co": 3.32,
    "Cr": 3.7,
    "Fe": 5.3,
    "Mn": 3.9,
    "Mo": 4.38,
    "Ni": 6.2,
    "V": 3.25,
    "W": 6.2,
}
"""U of the Materials Project for these elements in oxides and fluorides, eV."""
_WITH_U: Final = {"O", "F"}


def compute_mp2020_correction(sample: Mapping[str, NDArray[Any]]) -> float:
    """Compute the MP2020 correction of the energy of a crystal, eV.

    Args:
        sample: `atomic_numbers`, `positions`, Å, `cell` and `energy`, eV, without corrections, of
            a calculation with the U values of the Materials Project.
    """
    from pymatgen.core import Lattice, Structure
    from pymatgen.entries.compatibility import MaterialsProject2020Compatibility
    from pymatgen.entries.computed_entries import ComputedStructureEntry

    symbols = [chemical_symbols[z] for z in sample["atomic_numbers"]]
    has_u = bool(_WITH_U & set(symbols)) and bool(_HUBBARD.keys() & set(symbols))
    positions = np.asarray(sample["positions"])
    structure = Structure(Lattice(sample["cell"]), symbols, positions, coords_are_cartesian=True)
    entry = ComputedStructureEntry(
        structure,
        float(sample["energy"]),
        parameters={
            "run_type": "GGA+U" if has_u else "GGA",
            "hubbards": {s: _HUBBARD.get(s, 0.0) for s in set(symbols)} if has_u else {},
        },
    )
    scheme = MaterialsProject2020Compatibility(check_potcar=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # oxidation states that cannot be guessed
        return float(sum(part.value for part in scheme.get_adjustments(entry)))
