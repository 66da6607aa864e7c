"""Our forces in LAMMPS; oracles: ASE's Lennard-Jones potential, dynamics and relaxation."""

import ase.build
import numpy as np
import pytest
from ase.filters import FrechetCellFilter
from ase.optimize import BFGS

from pipeline_atoms.engines.lammps import attach_to_lammps
from pipeline_core.units import find_factor
from plugins.atoms.engines.lammps_runs import find_rotation, list_energies, run_lammps
from plugins.atoms.engines.systems import STEPS, TIMESTEP, make_moving_argon, run_with_ase
from plugins.atoms.lennard_jones import make_ase_lennard_jones, make_calculator

BAR, KCAL = find_factor("stress", "bar"), find_factor("energy", "kcal/mol")
ATMOSPHERE = 1.01325 * BAR
PRESSURES = {
    "pxx": (0, 0), "pyy": (1, 1), "pzz": (2, 2), "pxy": (0, 1), "pxz": (0, 2), "pyz": (1, 2)
}  # fmt: skip


def test_energies_of_each_step_are_those_of_ase(tmp_path):
    atoms = make_moving_argon()
    expected, _ = run_with_ase(atoms, make_ase_lennard_jones())
    with run_lammps(atoms, tmp_path, make_calculator(), ["Ar"]) as lmp:
        energies = list_energies(lmp, STEPS, TIMESTEP / 1000)
    assert np.ptp(expected) > 1e-3  # it moves
    assert np.allclose(energies, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("units", "energy", "pressure"), [("metal", 1.0, BAR), ("real", KCAL, ATMOSPHERE)]
)
def test_energy_forces_and_pressure_in_the_units_of_lammps(units, energy, pressure, tmp_path):
    atoms = make_moving_argon()
    del atoms.arrays["momenta"]
    atoms.calc, R = make_ase_lennard_jones(), find_rotation(atoms)
    stress = R.T @ atoms.get_stress(voigt=False) @ R
    with run_lammps(atoms, tmp_path, make_calculator(), ["Ar"], units) as lmp:
        lmp.command("run 0")
        total = lmp.get_thermo("pe") * energy
        order = np.argsort(lmp.numpy.extract_atom("id"))
        forces = lmp.numpy.extract_atom("f")[order] * energy
        shown = {name: lmp.get_thermo(name) * pressure for name in PRESSURES}
    assert total == pytest.approx(atoms.get_potential_energy(), abs=1e-6)
    assert np.allclose(forces, atoms.get_forces() @ R, atol=1e-6)
    assert shown == pytest.approx({n: -stress[at] for n, at in PRESSURES.items()}, abs=1e-8)


def test_a_box_without_pressure_is_that_of_ase(tmp_path):
    atoms = ase.build.bulk("Ar", "fcc", 5.4, cubic=True)
    with run_lammps(atoms, tmp_path, make_calculator(), ["Ar"]) as lmp:
        lmp.commands_list(["fix relax all box/relax iso 0.0", "minimize 0 1e-8 200 2000"])
        low, high = lmp.extract_box()[:2]
    atoms.calc = make_ase_lennard_jones()
    BFGS(FrechetCellFilter(atoms, hydrostatic_strain=True), logfile=None).run(fmax=1e-6)
    assert high[0] - low[0] == pytest.approx(atoms.cell[0, 0], abs=1e-4)


def test_a_cluster_has_energy_and_no_pressure_of_the_model(tmp_path):
    atoms = ase.build.bulk("Ar", "fcc", 5.3, cubic=True)
    atoms.rattle(0.1, seed=1)
    atoms.pbc = False
    atoms.center(vacuum=4.0)
    atoms.calc = make_ase_lennard_jones()
    with run_lammps(atoms, tmp_path, make_calculator(), ["Ar"]) as lmp:
        lmp.command("run 0")
        assert lmp.get_thermo("pe") == pytest.approx(atoms.get_potential_energy(), abs=1e-9)
        assert lmp.get_thermo("press") == 0


def test_a_box_does_not_follow_a_pressure_that_there_is_not(tmp_path):
    calculator = make_calculator(("energy", "forces"))
    with (
        pytest.raises(ValueError, match="the model predicts no stress; keep the box"),
        run_lammps(make_moving_argon(), tmp_path, calculator, ["Ar"]) as lmp,
    ):
        lmp.commands_list(["fix move all nph iso 0 0 1", "run 5"])


def test_what_the_model_refuses_ends_the_run(tmp_path):
    atoms, steps = make_moving_argon(), []
    atoms.symbols = "Kr4"

    def run():
        with run_lammps(atoms, tmp_path, make_calculator(), ["Kr"]) as lmp:
            lmp.command("run 1000")
            steps.append(lmp.extract_global("ntimestep"))

    with pytest.raises(ValueError, match="the model was trained on Ar, not on Kr"):
        run()
    assert steps[0] < 3


@pytest.mark.parametrize(
    ("units", "n_ranks", "elements", "message"),
    [
        ("electron", 1, ["Ar"], "LAMMPS has units electron; give it"),
        ("metal", 1, ["Ar", "Kr"], r"1 atom types, and 2 elements are named \(Ar, Kr\)"),
        ("metal", 1, ["argon"], "'argon' is not a chemical symbol"),
        ("metal", 2, ["Ar"], "LAMMPS has 2 ranks"),
    ],
)
def test_what_does_not_fit_is_refused(units, n_ranks, elements, message):
    lmp = FakeLammps(units, n_ranks)
    with (
        pytest.raises(ValueError, match=message),
        attach_to_lammps(lmp, make_calculator(), elements),
    ):
        pass


class FakeLammps:
    """What LAMMPS says of itself, with one type of atoms."""

    def __init__(self, units, n_ranks):
        self._facts = {"units": units, "world_size": n_ranks, "ntypes": 1}

    def extract_global(self, name):
        return self._facts[name]

    extract_setting = extract_global
