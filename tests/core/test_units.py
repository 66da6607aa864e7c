"""Conversions. Oracle: ase.units with the constants of CODATA 2018."""

import math

import ase.units
import pytest

from pipeline_core import units

ASE = ase.units.create_units("2018")

EXPECTED = {
    ("energy", "eV"): ASE.eV,
    ("energy", "meV"): ASE.eV / 1000,
    ("energy", "hartree"): ASE.Hartree,
    ("energy", "rydberg"): ASE.Rydberg,
    ("energy", "kcal/mol"): ASE.kcal / ASE.mol,
    ("energy", "kJ/mol"): ASE.kJ / ASE.mol,
    ("energy", "cm^-1"): ASE.invcm,
    ("length", "angstrom"): ASE.Angstrom,
    ("length", "bohr"): ASE.Bohr,
    ("length", "nm"): ASE.nm,
    ("force", "eV/angstrom"): ASE.eV / ASE.Angstrom,
    ("force", "meV/angstrom"): ASE.eV / 1000,
    ("force", "hartree/bohr"): ASE.Hartree / ASE.Bohr,
    ("force", "rydberg/bohr"): ASE.Rydberg / ASE.Bohr,
    ("force", "kcal/mol/angstrom"): ASE.kcal / ASE.mol,
    ("stress", "eV/angstrom^3"): 1.0,
    ("stress", "GPa"): ASE.GPa,
    ("stress", "kbar"): 1000 * ASE.bar,
    ("stress", "bar"): ASE.bar,
    ("stress", "hartree/bohr^3"): ASE.Hartree / ASE.Bohr**3,
    ("stress", "rydberg/bohr^3"): ASE.Rydberg / ASE.Bohr**3,
    ("stress", "kcal/mol/angstrom^3"): ASE.kcal / ASE.mol,
    ("magnetic moment", "mu_B"): 1.0,
    ("angle", "radian"): 1.0,
    ("angle", "degree"): 3.141592653589793 / 180,
}


@pytest.mark.parametrize(("dimension", "unit"), EXPECTED)
def test_factors_are_those_of_ase(dimension, unit):
    # ase derives some of its constants from others, which costs digits.
    assert units.find_factor(dimension, unit) == pytest.approx(EXPECTED[dimension, unit], rel=1e-8)


def test_constants_are_those_of_ase():
    assert pytest.approx(ASE._hbar / ASE._e * 1e15, rel=1e-12) == units.HBAR
    assert pytest.approx(ASE._amu / ASE._me, rel=1e-9) == units.DALTON
    known = {(dimension, unit) for dimension, table in units._UNITS.items() for unit in table}
    assert known == set(EXPECTED)
    for sign, expected in (("tension", ASE.GPa), ("pressure", -ASE.GPa)):
        assert units.find_stress_factor("GPa", sign) == pytest.approx(expected, rel=1e-8)


def test_a_misspelt_unit_names_the_nearest():
    message = r"unknown unit of energy 'hartre'.*did you mean 'hartree'"
    with pytest.raises(ValueError, match=message):
        units.find_factor("energy", "hartre")
    with pytest.raises(ValueError, match="unknown unit of length 'parsec'; choose from angstrom"):
        units.find_factor("length", "parsec")
    with pytest.raises(ValueError, match="unknown stress sign 'up'; expected 'tension'"):
        units.find_stress_factor("GPa", "up")


@pytest.mark.parametrize(
    ("dimension", "value", "unit"),
    [
        ("stress", 0.0063, "GPa"),
        ("stress", 0.00061, "kbar"),
        ("stress", 1.1, "eV/angstrom^3"),
        ("energy", 30.0, "hartree"),
        ("force", 51.0, "hartree/bohr"),
        ("length", 0.5, "bohr"),
    ],
)
def test_distances_tell_the_nearest_unit(dimension, value, unit):
    distances = units.measure_distances(dimension, value)
    assert min(distances, key=distances.get) == unit
    ratio = units.find_factor(dimension, unit) / value
    assert math.exp(distances[unit]) == pytest.approx(max(ratio, 1 / ratio))
