"""Oracles: equipartition, the ideal gas, exact properties of the splitting schemes."""

import numpy as np
import pytest
from ase import Atoms, units
from scipy import stats

from pipeline_atoms.config.dynamics import MolecularDynamics
from pipeline_atoms.dynamics.integrators import (
    compute_temperature,
    draw_momenta,
    make_integrator,
    remove_drift,
)
from pipeline_core.units import GPA
from plugins.atoms.dynamics.toy_calculators import STIFFNESS, IdealGas, Springs, make_lattice
from tiers import exhaustive, run_first


def make_options(ensemble, **changes):
    return MolecularDynamics(name="test", ensemble=ensemble, **changes)


def run(atoms, md, seed=0):
    """Return temperature, potential energy and conserved energy after each step."""
    rng = np.random.default_rng(seed)
    atoms.set_momenta(draw_momenta(atoms, md.temperature, rng))
    dynamics, conserved = make_integrator(atoms, md, rng)
    masses = atoms.get_masses()[:, None]
    rows = [
        (
            compute_temperature(atoms.get_momenta(), masses),
            atoms.get_potential_energy(),
            conserved(),
        )
        for _ in dynamics.irun(md.steps)
    ]
    return np.array(rows).T


def make_springs(n_cells=2, symbol="Cu"):
    atoms = make_lattice(n_cells, symbol)
    atoms.calc = Springs(atoms)
    return atoms


def test_momenta_are_maxwells_at_rest_at_the_temperature():
    atoms = Atoms("CuO" * 4000, positions=np.zeros((8000, 3)))
    momenta = draw_momenta(atoms, 500.0, np.random.default_rng(3))
    masses = atoms.get_masses()[:, None]

    assert np.abs(momenta.sum(axis=0)).max() < 1e-9
    assert compute_temperature(momenta, masses) == pytest.approx(500.0, rel=1e-12)
    scaled = momenta / np.sqrt(masses * units.kB * 500.0)
    assert stats.kstest(scaled[:4000].ravel(), "norm").pvalue > 0.01
    assert np.array_equal(momenta, draw_momenta(atoms, 500.0, np.random.default_rng(3)))


def test_at_rest_is_an_orthogonal_projection():
    rng = np.random.default_rng(0)
    masses = rng.uniform(1, 200, (7, 1))
    momenta = rng.normal(size=(7, 3))
    resting = remove_drift(momenta, masses)

    assert np.allclose(remove_drift(resting, masses), resting, atol=1e-14)
    assert np.allclose(((momenta - resting) * resting / masses).sum(axis=0), 0, atol=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize(
    "ensemble", run_first(["nve", "nvt_nose_hoover", "nvt_langevin"], "nvt_langevin")
)
def test_the_error_of_the_conserved_energy_falls_as_the_square_of_the_time_step(ensemble):
    fluctuation = []
    for timestep in (4.0, 1.0):
        md = make_options(
            ensemble, timestep=timestep, steps=int(1600 / timestep), friction=0.01, damping=50.0
        )
        fluctuation.append(run(make_springs(), md)[2].std())

    # The heat of Langevin dynamics is random, and so is a part of its error.
    spread = 0.4 if ensemble == "nvt_langevin" else 0.1
    assert fluctuation[0] / fluctuation[1] == pytest.approx(16.0, rel=spread)


@pytest.mark.slow
@pytest.mark.parametrize("ensemble", run_first(["nvt_nose_hoover", "nvt_langevin"]))
def test_thermostats_give_the_temperature_to_the_moving_degrees_of_freedom(ensemble):
    # Eight atoms: counting 24 degrees of freedom in place of 21 would give 343 K. Unequal masses
    # and a quartic term, because a Nosé-Hoover chain does not mix equal oscillators.
    atoms = make_lattice(2)
    atoms.set_masses(np.linspace(10, 60, 8))
    atoms.calc = Springs(atoms, quartic=20.0)
    md = make_options(ensemble, timestep=4.0, steps=4000, friction=0.05, damping=50.0)
    temperature = run(atoms, md)[0][500:]

    assert temperature.mean() == pytest.approx(300, rel=0.04)


@exhaustive
@pytest.mark.slow
def test_the_spread_of_the_temperature_is_canonical():
    # Of the kinetic energy of n degrees of freedom the variance is n (kT)²/2.
    temperature = run(
        make_springs(), make_options("nvt_langevin", timestep=2.0, steps=4000, friction=0.1)
    )[0]

    assert temperature.std() / 300 == pytest.approx(np.sqrt(2 / 21), rel=0.08)


@pytest.mark.slow
def test_langevin_samples_oscillators_exactly_at_a_large_time_step():
    # Leimkuhler and Matthews (2013): BAOAB has no error in the positions of a harmonic oscillator,
    # whatever the time step; here omega dt = 1, where others are off by tenths.
    atoms = make_springs(n_cells=3)
    omega = np.sqrt(STIFFNESS / atoms.get_masses()[0])
    md = make_options("nvt_langevin", timestep=1 / omega / units.fs, steps=4000, friction=0.05)
    potential = run(atoms, md)[1][200:]

    expected = 0.5 * 3 * (len(atoms) - 1) * units.kB * 300
    assert potential.mean() == pytest.approx(expected, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("ensemble", ["nve", "nvt_langevin", "nvt_nose_hoover"])
def test_the_centre_of_mass_stays_at_rest(ensemble):
    atoms = make_springs()
    atoms.set_chemical_symbols(["Cu", "O"] * 4)
    before = atoms.get_center_of_mass()
    run(atoms, make_options(ensemble, steps=200, timestep=1.0, friction=0.1))

    assert np.abs(atoms.get_momenta().sum(axis=0)).max() < 1e-9
    assert np.allclose(atoms.get_center_of_mass(), before, atol=1e-9)


@pytest.mark.slow
def test_npt_gives_an_ideal_gas_its_volume_and_keeps_its_conserved_energy():
    atoms = make_lattice(4, "Ar", spacing=10.0)
    atoms.calc = IdealGas()
    kT, volume = units.kB * 300, 2 / 3 * atoms.get_volume()
    pressure = (len(atoms) + 1) * kT / volume / GPA  # <V> = (N + 1) kT / P
    coupling = {"damping": 100.0, "barostat_damping": 100.0, "pressure": pressure}
    md = make_options("npt", timestep=5.0, steps=3000, **coupling)
    atoms.set_momenta(draw_momenta(atoms, 300, np.random.default_rng(0)))
    dynamics, conserved = make_integrator(atoms, md, np.random.default_rng(0))
    energies, volumes = np.array(
        [(conserved(), atoms.get_volume()) for _ in dynamics.irun(md.steps)]
    ).T

    assert volumes[0] == pytest.approx(1.5 * volume)
    assert volumes[500:].mean() == pytest.approx(volume, rel=0.03)
    assert np.ptp(energies) < 0.01 * kT * len(atoms)
