"""Relaxation; oracles: the published lattice of Stillinger-Weber silicon, exact Lennard-Jones."""

import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk
from ase.calculators.calculator import all_changes
from ase.calculators.lj import LennardJones
from ase.units import GPa

from pipeline_atoms.config.properties import Relaxation, RelaxOptions
from pipeline_atoms.properties.relaxation import compute_relaxation, relax, relax_converged
from plugins.atoms.properties.stillinger_weber import EPSILON, StillingerWeber


class Noisy(StillingerWeber):
    """Silicon with stresses that are wrong by some hundredths of a GPa in one direction."""

    def calculate(self, atoms=None, properties=("energy",), system_changes=all_changes):
        super().calculate(atoms, properties, system_changes)
        self.results["stress"] = self.results["stress"] + [5e-4, 0, 0, 0, 0, 0]


def make_options(**relaxation):
    return RelaxOptions(name="all", structures=["si.cif"], relax=Relaxation(**relaxation))


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["lbfgs", "fire"])
def test_lattice_of_stillinger_weber_silicon(optimizer):
    """The lattice constant is 5.431 Å, the energy -2 epsilon an atom, both exactly."""
    options = make_options(optimizer=optimizer)
    found = compute_relaxation(bulk("Si", a=5.5), StillingerWeber(), options).summary

    assert found["converged"]
    assert found["a_A"] * 2**0.5 == pytest.approx(5.431, abs=1e-3)
    assert found["energy_per_atom_eV"] == pytest.approx(-2 * EPSILON, abs=1e-5)
    assert found["energy_gained_per_atom_eV"] > 0
    assert found["space_group"] == "Fd-3m (227)"


@pytest.mark.slow
def test_symmetry_is_kept_on_request():
    """Forces with noise, as those of a network, break a symmetry that nothing keeps."""
    start = bulk("Si", a=5.5)
    options = {"max_force": 0.03, "symmetry_tolerance": 1e-5}
    kept, free = (
        compute_relaxation(start, Noisy(), make_options(symmetry=symmetry, **options)).summary
        for symmetry in (True, False)
    )

    assert kept["space_group_before"] == kept["space_group"] == "Fd-3m (227)"
    assert free["space_group"] != "Fd-3m (227)"


def test_pressure_balances_the_stress():
    options = Relaxation(pressure=5.0, max_force=1e-4)
    relaxed = relax(bulk("Si", a=5.43), StillingerWeber(), options)

    assert relaxed.converged
    stress = relaxed.atoms.get_stress(voigt=False)
    np.testing.assert_allclose(stress, -5.0 * GPa * np.eye(3), atol=1e-4)


def test_a_dimer_relaxes_to_the_minimum_of_the_pair():
    """The minimum of 4 (x^-12 - x^-6) lies at 2^(1/6) with the energy -1."""
    start = Atoms("Ar2", positions=[(0, 0, 0), (0, 0, 1.18)])
    options = make_options(cell=False, max_force=1e-5)
    found = compute_relaxation(start, LennardJones(rc=50.0), options)

    positions = found.arrays["positions"]
    assert np.linalg.norm(positions[1] - positions[0]) == pytest.approx(2 ** (1 / 6), abs=1e-6)
    assert found.summary["energy_per_atom_eV"] == pytest.approx(-0.5, abs=1e-6)
    assert found.summary["space_group"] is None


def test_what_does_not_relax_is_said():
    start = bulk("Si", a=5.43)
    start.rattle(0.1, seed=1)
    with pytest.raises(ValueError, match=r"not relaxed after 1 steps .*raise relax\.steps"):
        relax_converged(start, StillingerWeber(), Relaxation(steps=1))
    stressed = relax(bulk("Si", a=5.8), StillingerWeber(), Relaxation(steps=1))
    assert not stressed.converged  # although symmetry leaves no forces
    assert stressed.max_force < 1e-10
    with pytest.raises(ValueError, match=r"three periodic directions only; set relax\.cell: false"):
        relax(Atoms("Ar2", positions=[(0, 0, 0), (0, 0, 1.3)]), LennardJones(), Relaxation())


def test_a_cell_that_runs_away_is_refused():
    """A tension of 50 GPa is beyond the strength of silicon."""
    options = Relaxation(pressure=-50.0)
    with pytest.raises(ValueError, match=r"flew apart: the volume became .* train on strained"):
        relax(bulk("Si", a=5.43), StillingerWeber(), options)
