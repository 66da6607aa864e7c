"""The surface of a molecule in ASE.

Oracles: surfaces in closed form at coordinates from ASE's geometry, finite differences, rotation
and reflection, and the conservation of energy, momentum and angular momentum.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from ase import Atoms
from ase.calculators.fd import calculate_numerical_forces

from pipeline_atoms.calculators.loading import load_calculator
from pipeline_core.units import BOHR
from pipeline_htfbr.data.geometry import find_positions
from pipeline_htfbr.data.hono import HONO
from pipeline_htfbr.data.molecule import Molecule
from pipeline_htfbr.data.points import Coordinate
from pipeline_htfbr.graph.basis import Leaf
from pipeline_htfbr.inference.calculator import SurfaceCalculator, make_calculator
from pipeline_htfbr.inference.domain import make_domain
from plugins.htfbr.additive import (
    TRANS,
    build_additive,
    build_hono_surface,
    draw_hono_points,
    draw_modes,
    make_hono_leaves,
    make_hono_sections,
    write_hono,
)


@pytest.fixture(scope="module")
def surface():
    return build_hono_surface()


@pytest.fixture(scope="module")
def calculator(surface):
    molecule = HONO().molecule
    domain = make_domain(HONO().coordinates, surface.leaves, molecule)
    return SurfaceCalculator(surface, molecule, domain)


def draw_hono(seed=0, size=0.03, tau=2.0):
    molecule = HONO().molecule
    x = TRANS.copy()
    x[5] = tau
    atoms = Atoms(molecule.symbols, find_positions(x, molecule, HONO().coordinates))
    atoms.set_masses(molecule.masses)
    atoms.rattle(size, seed=seed)
    return atoms


@pytest.mark.slow
@pytest.mark.parametrize("tau", [0.02, 2.0, 3.1])
def test_forces_are_derivatives_of_the_energy(calculator, tau):
    atoms = draw_hono(tau=tau)
    atoms.calc = calculator
    numerical = calculate_numerical_forces(atoms, eps=1e-5)
    assert np.allclose(atoms.get_forces(), numerical, atol=1e-7)


def test_energy_and_forces_turn_and_shift_with_the_molecule(calculator):
    atoms = draw_hono()
    atoms.calc = calculator
    energy, forces = atoms.get_potential_energy(), atoms.get_forces()
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]  # may reflect as well

    for rotation in (turn, -turn):
        atoms.positions = atoms.positions @ rotation.T + [5, -2, 11]
        forces = forces @ rotation.T
        assert atoms.get_potential_energy() == pytest.approx(energy, abs=1e-10)
        assert np.allclose(atoms.get_forces(), forces, atol=1e-9)
    assert np.allclose(forces.sum(0), 0, atol=1e-10)
    assert np.allclose(np.cross(atoms.positions, forces).sum(0), 0, atol=1e-9)


def test_a_torsion_beyond_the_fit_is_that_of_the_mirror_image():
    """A fit to [0, π] by functions that are not even still gives both halves of a turn."""
    leaves = make_hono_leaves()
    leaves[5] = replace(leaves[5], family="chebyshev", degree=14)
    flat = [lambda x: 0 * x] * 5
    surface = build_additive(leaves, [*flat, lambda x: 0.3 * np.cos(x) + 0.1 * np.cos(2 * x)])
    domain = make_domain(HONO().coordinates, leaves, HONO().molecule)
    atoms = draw_hono(tau=-2.0)
    atoms.calc = SurfaceCalculator(surface, HONO().molecule, domain)
    tau = np.radians(atoms.get_dihedral(0, 1, 2, 3))
    assert tau > np.pi
    expected = 0.3 * np.cos(tau) + 0.1 * np.cos(2 * tau)
    for consistent in (False, True):
        energy = atoms.get_potential_energy(force_consistent=consistent)
        assert energy == pytest.approx(expected, abs=1e-8)
    numerical = calculate_numerical_forces(atoms, eps=1e-5)
    assert np.allclose(atoms.get_forces(), numerical, atol=1e-8)


def test_forces_in_normal_modes():
    """Oracle: an isotropic oscillator of frequency ω in all modes, -∂V/∂q = -ħω q."""
    masses, positions = (12.0, 1.0, 1.0), np.random.default_rng(5).normal(size=(3, 3))
    centred = positions - np.average(positions, axis=0, weights=masses)
    molecule = Molecule(("C", "H", "H"), masses, centred.tolist(), draw_modes(centred, masses, 3))
    leaves = [Leaf(family="legendre", degree=2, lower=-5, upper=5) for _ in range(3)]
    coordinates = [Coordinate(name=f"q{i}", unit="1") for i in range(3)]
    surface = build_additive(leaves, [lambda q: 0.1 * q**2] * 3)
    q = np.array([0.5, -1.0, 0.8])
    atoms = Atoms("CHH", find_positions(q, molecule, coordinates))
    atoms.rotate(40, (1, 1, 0))
    atoms.calc = SurfaceCalculator(surface, molecule, make_domain(coordinates, leaves, molecule))

    assert atoms.get_potential_energy() == pytest.approx(0.1 * (q**2).sum())
    numerical = calculate_numerical_forces(atoms, eps=1e-5)
    assert np.allclose(atoms.get_forces(), numerical, atol=1e-8)


def exchange_atoms(atoms):
    atoms.symbols = "OHNO"


def make_periodic(atoms):
    atoms.set_cell([9, 9, 9])
    atoms.pbc = True


def put_atoms_together(atoms):
    atoms.positions[1] = atoms.positions[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (exchange_atoms, r"the molecule H O N O; give these atoms in this order"),
        (lambda atoms: atoms.append("O"), r"the molecule H O N O; give these atoms"),
        (lambda atoms: atoms.pop(), r"the molecule H O N O; give these atoms"),
        (make_periodic, r"free molecule.*set atoms.pbc = False"),
        (
            lambda atoms: atoms.set_distance(0, 1, 2.6 * BOHR, fix=1),
            r"coordinate r_OH is 2\.6 bohr, outside of the domain \[1\.3, 2\.45\]",
        ),
        (
            lambda atoms: atoms.positions.fill(np.nan),
            r"atom 0 has a non-finite position \(.*nan\) Å",
        ),
        (put_atoms_together, "[Aa]toms"),
    ],
)
def test_atoms_without_an_answer_are_refused(calculator, change, message):
    atoms = draw_hono(size=0.0)
    change(atoms)
    atoms.calc = calculator
    with pytest.raises(ValueError, match=message):
        atoms.get_forces()


@pytest.mark.slow
def test_the_calculator_of_a_run_and_of_its_file_alone(tmp_path, project):
    run = project(tmp_path, draw_hono_points(), make_hono_sections())
    surface = write_hono(run)
    moved = tmp_path / "elsewhere" / "hono-2004.pt"
    atoms, energies = draw_hono(), []
    domain = make_domain(HONO().coordinates, surface.leaves, HONO().molecule)
    atoms.calc = SurfaceCalculator(surface, HONO().molecule, domain)
    expected = atoms.get_potential_energy()

    atoms.calc = make_calculator(run, "cpu")
    energies.append(atoms.get_potential_energy())
    moved.parent.mkdir()
    run.model.rename(moved)
    run.data.unlink()
    before = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    atoms.calc = load_calculator(moved)
    energies.append(atoms.get_potential_energy())

    assert energies == pytest.approx([expected, expected], abs=1e-12)
    assert torch.equal(torch.random.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002


def test_a_surface_without_a_molecule_has_no_calculator(tmp_path, project):
    run = project(tmp_path, replace(draw_hono_points(), molecule=None), make_hono_sections())
    write_hono(run)
    with pytest.raises(ValueError, match=r"model\.pt: .* without a molecule.*exported sum of"):
        make_calculator(run, "cpu")
