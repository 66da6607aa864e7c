"""Ethene by GFN2-xTB. Oracles: points and modes in ../shared, energy conservation, ASE's masses."""

import numpy as np
import pytest
from ase.data import atomic_masses_iupac2016, atomic_numbers
from numpy.random import SeedSequence
from numpy.testing import assert_allclose, assert_array_equal

from pipeline_core.units import BOHR, DALTON, HARTREE, HBAR, find_factor
from pipeline_htfbr.data.datasets import EtheneSource
from pipeline_htfbr.data.ethene import load_ethene
from pipeline_htfbr.data.molecule import Molecule
from pipeline_htfbr.data.trajectories import follow, follow_trajectories
from real_data import find

pytest.importorskip("tblite")


@pytest.fixture(scope="module")
def surface():
    return load_ethene()


@pytest.fixture(scope="module")
def reference():
    """Frequencies, cm⁻¹, and directions, (12, 6, 3) bohr, of the modes of the reference set."""
    meta = np.load(find("ethene/ethene_meta.npz"))
    return meta["freq_cm1"], meta["T"].T.reshape(12, 6, 3)


def test_frequencies_are_those_of_the_reference(surface, reference):
    frequencies = np.array(surface.molecule.variables.frequencies)
    assert_allclose(frequencies, reference[0], atol=0.01)
    assert_allclose(frequencies[[0, -1]], [841, 3129], atol=1)


def test_energies_are_those_of_the_reference(surface, reference):
    """Its modes have signs of their own."""
    signs = np.sign(np.einsum("iax,iax->i", surface.directions, reference[1]))
    # Two pairs of modes differ by less than 1 cm⁻¹ and mix at the level of the accuracy of tblite.
    assert_allclose(surface.directions * signs[:, None, None], reference[1], atol=1e-3)
    points = np.load(find("ethene/ethene12d.npy"))[::400]
    energies = surface.energies(points[:, :12] * signs) / HARTREE
    assert_allclose(energies, points[:, 12], rtol=0, atol=5e-5)
    assert np.sqrt(np.mean((energies - points[:, 12]) ** 2)) < 5e-6


def test_near_the_minimum_it_is_harmonic(surface):
    """Oracle: V = Σ ħω q²/2, the definition of dimensionless normal modes."""
    q = 0.02 * np.eye(12)
    energies = surface.energies(np.concatenate([np.zeros((1, 12)), q, -q]))
    assert energies[0] == pytest.approx(0, abs=1e-9)
    even = (energies[1:13] + energies[13:]) / 2
    assert_allclose(even, surface.frequencies * 0.02**2 / 2, rtol=0.01)


def test_gradients_are_derivatives(surface):
    x = np.random.default_rng(0).normal(scale=0.7, size=(2, 12))
    gradients = surface.gradients(x)
    for i, step in enumerate(1e-2 * np.eye(12)):
        near, far = (
            surface.energies(x + k * step) - surface.energies(x - k * step) for k in (1, 2)
        )
        assert_allclose(gradients[:, i], (8 * near - far) / 0.12, rtol=0, atol=1e-5)


def test_modes_are_normal_and_free_of_rigid_motion(surface):
    """Oracle: the definition of normal modes; ASE's masses, which average over isotopes."""
    molecule = surface.molecule
    masses = np.array(molecule.masses)
    numbers = [atomic_numbers[symbol] for symbol in molecule.symbols]
    assert_allclose(masses, atomic_masses_iupac2016[numbers], rtol=1e-3)
    modes = np.array(molecule.variables.displacements) / BOHR
    kinetic = np.einsum("iax,jax,a->ij", modes, modes, masses * DALTON)
    assert_allclose(kinetic, np.diag(HARTREE / surface.frequencies), atol=1e-6)
    positions = np.array(molecule.reference)
    moved = np.einsum("iax,a->ix", modes, masses)
    turned = np.einsum("iax,a->ix", np.cross(positions, modes), masses)
    assert_allclose(moved, 0, atol=1e-9)
    # Positions have the centre of mass near the origin, not in it.
    assert_allclose(turned, 0, atol=1e-5)
    assert Molecule.from_dict(molecule.to_dict()) == molecule


@pytest.mark.slow
def test_points_where_charges_do_not_converge_are_nan(surface):
    x = np.zeros((2, 12))
    x[1] = 1e4
    energies, gradients = surface.energies(x), surface.gradients(x)
    assert np.isfinite(energies[0])
    assert np.isnan(energies[1])
    assert np.isnan(gradients[1]).all()


def test_a_trajectory_conserves_energy(surface):
    """Oracle: H = Σ ħω p²/2 + V is constant; p from central differences of q."""
    source = EtheneSource(reader="ethene_xtb", steps=200, stride=1, timestep=0.05)
    result = follow(surface, source, 0, SeedSequence(1))
    assert result.end == "steps"
    velocity = (result.q[2:] - result.q[:-2]) / (2 * source.timestep)
    p = velocity * HBAR / surface.frequencies
    total = result.energy[1:-1] + (surface.frequencies * p**2).sum(axis=1) / 2
    assert np.ptp(result.energy) > 0.1
    assert_allclose(total, total[0], rtol=0, atol=2e-3)


@pytest.mark.slow
def test_starts_have_the_zero_point_energy(surface):
    """Oracle: the harmonic ground state has half its energy, Σ ħω/4, in V."""
    source = EtheneSource(reader="ethene_xtb", steps=1)
    starts = [follow(surface, source, 0, seed).q for seed in SeedSequence(0).spawn(200)]
    q = np.concatenate(starts)
    harmonic = (surface.frequencies * q**2).sum(axis=1) / 2
    expected = surface.frequencies.sum() / 4
    spread = np.sqrt((surface.frequencies**2).sum() / 8 / len(q))
    assert abs(harmonic.mean() - expected) < 4 * spread


@pytest.mark.slow
def test_points_do_not_depend_on_the_number_of_processes():
    options = {"reader": "ethene_xtb", "points": 95, "steps": 40, "seed": 3, "gradients": True}
    one, two = (follow_trajectories(EtheneSource(**options, processes=n)).points for n in (1, 2))
    for name in ("x", "energy", "gradient", "group"):
        assert_array_equal(getattr(one, name), getattr(two, name))
    assert len(one.x) == 95
    assert np.unique(one.group).tolist() == [f"trajectory-{i:04d}" for i in range(5)]
    assert one.surface == "ethene_xtb"
    # The rows agree with the surface that evaluation compares with.
    surface = load_ethene()
    assert_allclose(surface.energies(one.x[::10]), one.energy[::10], atol=1e-5)
    assert one.energy.min() > 0
    assert find_factor("energy", "hartree") * 0.25 > one.energy.max()
