"""The surface of HONO. Oracles: two published sets of values, and the barrier of the abstract.

The sets, a 5⁶ grid and 729 points, are by the authors of SOP-FBR, in single precision above a zero
of energy of their own.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ase import Atoms
from ase.data import atomic_masses_iupac2016
from numpy.testing import assert_allclose

from pipeline_core.units import BOHR, HARTREE, find_factor
from pipeline_htfbr.data.hono import COORDINATES, HONO
from pipeline_htfbr.data.molecule import Molecule
from plugins.htfbr.additive import TRANS
from real_data import find

ROOT = Path(__file__).parents[4]
CM = find_factor("energy", "cm^-1")
R_ON, R_OH, R_NO, COS_HON, COS_ONO, TAU = range(6)


def multiply_axes(axes) -> np.ndarray:
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))


def make_axis(number: int, count: int) -> np.ndarray:
    return np.linspace(COORDINATES[number].lower, COORDINATES[number].upper, count)


def energy(x) -> float:
    return float(HONO().energies(np.atleast_2d(x))[0])


def test_trans_is_where_and_as_deep_as_published():
    assert energy(TRANS) / HARTREE == pytest.approx(-1.0e-5, abs=5e-7)
    assert_allclose(HONO().gradients(TRANS[None]), 0, atol=1e-7)


def test_a_published_grid():
    order = [R_OH, R_NO, COS_ONO, R_ON, COS_HON, TAU]
    x = multiply_axes([make_axis(number, 5) for number in order])[:, np.argsort(order)]
    deviation = HONO().energies(x) / CM - np.loadtxt(find("hono/e_ref_5pow6_cm1.txt"))
    assert abs(deviation.mean()) < 2
    assert deviation.std() < 0.3
    assert np.ptp(deviation) < 1.5


def test_published_points():
    table = np.loadtxt(find("hono/ref_ab_729.txt"))
    x = table[:, :6].copy()
    x[:, [COS_HON, COS_ONO]] = np.cos(x[:, [COS_HON, COS_ONO]])
    deviation = HONO().energies(x) / CM - table[:, 6]
    assert abs(deviation.mean()) < 2
    assert deviation.std() < 0.3


def test_the_coefficients_are_those_of_two_copies():
    """The copies: the operator file of MCTDH and the QuantumModelLib, which agree."""
    ours = ROOT / "plugins/pipeline_htfbr/data/hono_coefficients.csv"
    table = np.loadtxt(ours, delimiter=",", skiprows=4)
    assert_allclose(table, np.loadtxt(find("hono/coefficients.csv"), delimiter=",", skiprows=1))


def test_gradients_are_derivatives():
    """Oracle: five-point differences of the energies."""
    rng = np.random.default_rng(0)
    x = rng.uniform([c.lower for c in COORDINATES], [c.upper for c in COORDINATES], (3000, 6))
    gradients = HONO().gradients(x)
    for i, step in enumerate(1e-3 * np.eye(6)):
        near, far = (HONO().energies(x + k * step) - HONO().energies(x - k * step) for k in (1, 2))
        assert_allclose(gradients[:, i], (8 * near - far) / 12e-3, rtol=0, atol=1e-6)


def test_it_is_even_and_periodic_in_the_torsion():
    x = np.tile(TRANS, (20, 1))
    x[:, TAU] = np.linspace(0.1, 3, 20)
    mirrored, turned = x.copy(), x.copy()
    mirrored[:, TAU] *= -1
    turned[:, TAU] += COORDINATES[TAU].period
    assert_allclose(HONO().energies(mirrored), HONO().energies(x), atol=1e-13)
    assert_allclose(HONO().energies(turned), HONO().energies(x), atol=1e-13)


def test_the_molecule_is_trans_hono():
    """Oracle: distances, angles and masses by ASE."""
    molecule = HONO().molecule
    atoms = Atoms(molecule.symbols, molecule.reference)
    result = []
    for one in molecule.variables:
        match one.kind:
            case "distance":
                result.append(atoms.get_distance(*one.atoms) / BOHR)
            case "cosine":
                result.append(np.cos(np.radians(atoms.get_angle(*one.atoms))))
            case "dihedral":
                result.append(np.radians(atoms.get_dihedral(*one.atoms)))
    assert_allclose(result, TRANS, atol=1e-9)
    # The standard weights average over isotopes, nearly all of which are the most abundant ones.
    assert_allclose(molecule.masses, atomic_masses_iupac2016[atoms.numbers], rtol=5e-4)
    assert Molecule.from_dict(molecule.to_dict()) == molecule


@pytest.mark.parametrize("call", [HONO().energies, HONO().gradients])
def test_an_angle_instead_of_its_cosine_is_named(call):
    x = np.array([TRANS, TRANS])
    x[1, COS_ONO] = 1.93
    with pytest.raises(ValueError, match=r"cos_ONO is 1\.93 at point 1; it is the cosine"):
        call(x)
