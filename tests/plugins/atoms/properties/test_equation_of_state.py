"""Equations of state; oracles: published constants of Lennard-Jones crystals and of silicon."""

import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk
from ase.calculators.lj import LennardJones
from ase.units import GPa

from pipeline_atoms.config.properties import EquationOfStateOptions
from pipeline_atoms.properties.equation_of_state import (
    compute_equation_of_state,
    fit_volumes,
)
from plugins.atoms.properties.stillinger_weber import EPSILON, StillingerWeber

OPTIONS = EquationOfStateOptions(name="all", structures=["x.cif"])


@pytest.mark.slow
def test_stillinger_weber_silicon():
    """5.431 Å; 101.4 GPa as of the constants of E. R. Cowley, Phys. Rev. Lett. 60, 2379 (1988)."""
    found = compute_equation_of_state(bulk("Si", a=5.5), StillingerWeber(), OPTIONS).summary

    assert (8 * found["volume_per_atom_A3"]) ** (1 / 3) == pytest.approx(5.431, abs=1e-3)
    assert found["energy_per_atom_eV"] == pytest.approx(-2 * EPSILON, abs=1e-4)
    assert found["bulk_modulus_GPa"] == pytest.approx(101.4, rel=5e-3)
    assert found["rms_of_fit_meV_per_atom"] < 0.01


@pytest.mark.slow
def test_lennard_jones_crystal():
    """Nearest neighbours at 1.09 sigma, -8.61 epsilon an atom, 75 epsilon / sigma^3.

    Ashcroft and Mermin, Solid State Physics (1976), chapter 20.
    """
    sigma, epsilon = 3.4, 0.0104
    pairs = LennardJones(sigma=sigma, epsilon=epsilon, rc=8 * sigma)
    found = compute_equation_of_state(bulk("Ar", a=5.3), pairs, OPTIONS).summary

    nearest = (4 * found["volume_per_atom_A3"]) ** (1 / 3) / 2**0.5
    assert nearest / sigma == pytest.approx(1.09, rel=2e-3)
    assert found["energy_per_atom_eV"] / epsilon == pytest.approx(-8.61, rel=6e-3)
    bulk_modulus = found["bulk_modulus_GPa"] * GPa * sigma**3 / epsilon
    assert bulk_modulus == pytest.approx(75, rel=0.01)


def test_an_exact_birch_murnaghan_curve_gives_its_parameters():
    volume, modulus, slope, energy = 20.0, 0.6, 4.2, -5.0
    volumes = np.linspace(18, 22, 9)
    x = (volume / volumes) ** (2 / 3)
    energies = energy + 9 * volume * modulus / 16 * (
        (x - 1) ** 3 * slope + (x - 1) ** 2 * (6 - 4 * x)
    )
    found = fit_volumes(volumes, energies, 1, "birchmurnaghan").summary

    assert found["volume_per_atom_A3"] == pytest.approx(volume)
    assert found["bulk_modulus_GPa"] == pytest.approx(modulus / GPa)
    assert found["bulk_modulus_derivative"] == pytest.approx(slope)


def test_energies_without_a_minimum_are_refused():
    options = OPTIONS.model_copy(update={"relax": None})
    with pytest.raises(ValueError, match=r"lowest at the smallest volume.*raise volume_range"):
        compute_equation_of_state(bulk("Si", a=6.2), StillingerWeber(), options)
    with pytest.raises(ValueError, match="give a crystal"):
        compute_equation_of_state(Atoms("Si"), StillingerWeber(), options)
