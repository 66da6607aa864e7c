"""All conversions of units.

Inside the engine: eV, Å, eV/Å, eV/Å³ with tension positive (as ASE), µB, fs, K. Constants are
CODATA 2018 (https://physics.nist.gov/cuu/Constants), checked against `ase.units` in the tests.
"""

import math
from typing import Final

from pipeline_core.suggestions import suggest

HARTREE: Final = 27.211386245988
"""eV"""
BOHR: Final = 0.529177210903
"""Å"""
HBAR: Final = 0.6582119569509066
"""eV fs"""
DALTON: Final = 1822.888486209
"""Masses of the electron"""
_JOULE: Final = 1 / 1.602176634e-19
_PASCAL: Final = _JOULE * 1e-30
GPA: Final = 1e9 * _PASCAL
"""eV/Å³"""
_KCAL_PER_MOL: Final = 4184 * _JOULE / 6.02214076e23
_INVERSE_CM: Final = 1.239841984e-4
_DEGREE: Final = 0.017453292519943295

_UNITS: Final[dict[str, dict[str, float]]] = {
    "energy": {
        "eV": 1.0,
        "meV": 1e-3,
        "hartree": HARTREE,
        "rydberg": HARTREE / 2,
        "kcal/mol": _KCAL_PER_MOL,
        "kJ/mol": _KCAL_PER_MOL / 4.184,
        "cm^-1": _INVERSE_CM,
    },
    "length": {"angstrom": 1.0, "bohr": BOHR, "nm": 10.0},
    "force": {
        "eV/angstrom": 1.0,
        "meV/angstrom": 1e-3,
        "hartree/bohr": HARTREE / BOHR,
        "rydberg/bohr": HARTREE / 2 / BOHR,
        "kcal/mol/angstrom": _KCAL_PER_MOL,
    },
    "stress": {
        "eV/angstrom^3": 1.0,
        "GPa": GPA,
        "kbar": GPA / 10,
        "bar": GPA / 10_000,
        "hartree/bohr^3": HARTREE / BOHR**3,
        "rydberg/bohr^3": HARTREE / 2 / BOHR**3,
        "kcal/mol/angstrom^3": _KCAL_PER_MOL,
    },
    "magnetic moment": {"mu_B": 1.0},
    "angle": {"radian": 1.0, "degree": _DEGREE},
}

DIMENSION: Final[dict[str, str]] = {
    "energy": "energy",
    "forces": "force",
    "stress": "stress",
    "positions": "length",
    "cell": "length",
    "magmoms": "magnetic moment",
}
"""Physical dimension of each field that a raw file may give in another unit."""


def find_factor(dimension: str, unit: str) -> float:
    """Return the number that turns a value in `unit` into the engine's unit.

    Args:
        dimension: One of energy, length, force, stress, magnetic moment, angle.
        unit: A unit of that dimension, spelled as in the table above.

    Raises:
        ValueError: The unit does not exist for this dimension.
    """
    table = _UNITS[dimension]
    if unit not in table:
        raise ValueError(
            f"unknown unit of {dimension} {unit!r}; choose from {', '.join(table)}"
            f"{suggest(unit, table)}"
        )
    return table[unit]


def find_stress_factor(unit: str, sign: str) -> float:
    """Return the number that turns a stress into eV/Å³ with tension positive.

    Args:
        unit: Unit of stress.
        sign: "tension" if a positive trace pulls the cell together as in ASE, "pressure" if the
            file gives the opposite sign, as VASP's vasprun.xml and CP2K do.

    Raises:
        ValueError: Unknown unit or sign.
    """
    signs = {"tension": 1.0, "pressure": -1.0}
    if sign not in signs:
        raise ValueError(f"unknown stress sign {sign!r}; expected 'tension' or 'pressure'")
    return signs[sign] * find_factor("stress", unit)


def measure_distances(dimension: str, value: float) -> dict[str, float]:
    """Return the distance of `value` from the factor of each unit of a dimension.

    Args:
        dimension: As for `find_factor`.
        value: A positive number of the engine's units.

    Returns:
        Unit to the magnitude of the logarithm of the ratio: log 2 for twice or half the value.
    """
    return {unit: abs(math.log(factor / value)) for unit, factor in _UNITS[dimension].items()}
