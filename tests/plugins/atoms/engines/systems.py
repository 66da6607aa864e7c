"""Argon of a Lennard-Jones potential, for the engines: ours, and ASE's calculator as the oracle."""

import numpy as np
from ase import units
from ase.md.verlet import VelocityVerlet

from plugins.atoms.calculators.test_calculator import make_argon

STEPS = 50
TIMESTEP = 2.0  # fs


def make_moving_argon(seed=3):
    """A small strained crystal of argon at some 60 K."""
    atoms = make_argon(seed)
    heat(atoms, 60, seed)
    return atoms


def heat(atoms, temperature, seed=0):
    """Give atoms velocities of a temperature, K; together they stand still, as i-PI wants them."""
    widths = np.sqrt(units.kB * temperature / atoms.get_masses())[:, None]
    atoms.set_velocities(widths * np.random.default_rng(seed).normal(size=(len(atoms), 3)))
    atoms.set_momenta(atoms.get_momenta() - atoms.get_momenta().mean(axis=0))


def run_with_ase(atoms, calculator, steps=STEPS, timestep=TIMESTEP):
    """Return potential energies of all steps, (steps + 1,) eV, and the atoms at the end."""
    atoms = atoms.copy()
    atoms.calc = calculator
    energies = []
    dynamics = VelocityVerlet(atoms, timestep * units.fs)
    dynamics.attach(lambda: energies.append(atoms.get_potential_energy()))
    dynamics.run(steps)
    return np.array(energies), atoms
