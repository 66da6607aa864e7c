"""Amorphous structures; oracles: equipartition of oscillators, the ideal gas, and argon's melt."""

import numpy as np
import pytest
from ase import units
from ase.build import bulk

from pipeline_atoms.config.properties import MeltQuenchOptions
from pipeline_atoms.properties.glasses import compute_glass
from plugins.atoms.dynamics.toy_calculators import IdealGas, Springs, make_lattice
from plugins.atoms.lennard_jones import make_ase_lennard_jones
from tiers import exhaustive

SHORT = {
    "name": "a",
    "structures": ["a.cif"],
    "melt_temperature": 1000.0,
    "final_temperature": 200.0,
    "cooling_rate": 1000.0,
    "melt_steps": 400,
    "anneal_steps": 400,
    "timestep": 2.0,
    "friction": 0.05,
    "relax": None,
}


def make_options(**options):
    return MeltQuenchOptions.model_validate(SHORT | options)


@pytest.mark.slow
def test_the_bath_follows_the_schedule():
    findings = compute_glass(make_lattice(), IdealGas(), make_options())
    time, bath = findings.arrays["time"], findings.arrays["bath"]
    assert findings.summary["steps"] == 400 + 400 + 400  # 800 K at 1000 K/ps are 0.8 ps
    assert time[-1] == 2.0 * 1200
    # 1000 K until 0.8 ps, 200 K from 1.6 ps on, and 1 K/fs between.
    assert bath == pytest.approx(np.interp(time, [800, 1600], [1000, 200]))


@pytest.mark.slow
def test_oscillators_have_the_energy_of_the_bath_and_do_not_melt():
    start = make_lattice()
    findings = compute_glass(start, Springs(start), make_options(anneal_steps=4000))
    annealed = findings.arrays["energy"][findings.arrays["time"] > 2000]
    exact = 1.5 * units.kB * 200.0 * (len(start) - 1) / len(start)
    assert annealed.mean() == pytest.approx(exact, rel=0.1)
    assert not findings.summary["melted"]


@pytest.mark.slow
def test_an_ideal_gas_melts_and_has_no_structure():
    start = make_lattice()
    options = make_options(melt_steps=3000, friction=0.002, anneal_steps=2000)
    findings = compute_glass(start, IdealGas(), options)
    radii, g = findings.arrays["r"], findings.arrays["rdf_Cu-Cu"]
    assert findings.summary["melted"]
    mean = np.average(g[radii < 4.5], weights=radii[radii < 4.5] ** 2)
    assert mean == pytest.approx(1 - 1 / len(start), abs=0.1)
    assert findings.arrays["rdf_error_Cu-Cu"].shape == g.shape
    density = 63.546 * 1.66053907 / 27.0
    assert findings.summary["density_g_per_cm3"] == pytest.approx(density, rel=1e-4)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_glass():
    one, same, other = (
        compute_glass(make_lattice(), IdealGas(), make_options(seed=seed)).arrays["positions"]
        for seed in (1, 1, 2)
    )
    assert np.array_equal(one, same)
    assert not np.allclose(one, other)


@exhaustive
@pytest.mark.slow
def test_argon_is_no_crystal_afterwards():
    crystal = bulk("Ar", a=5.6, cubic=True).repeat((2, 2, 2))
    options = make_options(
        melt_temperature=600.0,
        melt_steps=1000,
        final_temperature=10.0,
        cooling_rate=200.0,
        timestep=4.0,
        friction=0.002,
        relax={"cell": False, "symmetry": False, "max_force": 0.002},
    )
    findings = compute_glass(crystal, make_ase_lennard_jones(), options)
    assert findings.summary["melted"]
    assert findings.summary["converged"]
    crystal.calc = make_ase_lennard_jones()
    assert findings.summary["energy_per_atom_eV"] > crystal.get_potential_energy() / 32 + 0.001
    radii, g = findings.arrays["r"], findings.arrays["rdf_Ar-Ar"]
    second = np.abs(radii - 5.6) < 0.15  # where the crystal has its second neighbours
    assert 0 < g[second].max() < 4


def test_atoms_that_fly_apart_are_told():
    start = make_lattice()
    with pytest.raises(ValueError, match=r"flew apart at step .* time step of 2000 fs is too long"):
        compute_glass(start, Springs(start, quartic=50.0), make_options(timestep=2000.0))
    with pytest.raises(ValueError, match=r"final_temperature 2000 K is not below melt_temperature"):
        make_options(final_temperature=2000.0)
