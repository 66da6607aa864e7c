"""Oracles: ASE as reader of what is written and integrator of its own; energy conservation."""

import re

import ase.build
import ase.io
import h5py
import numpy as np
import pytest
from ase import Atoms, units
from ase.calculators.calculator import Calculator, all_changes

from pipeline_atoms.config.dynamics import MolecularDynamics
from pipeline_atoms.dynamics.dynamics import run_dynamics
from pipeline_atoms.dynamics.frames import OBSERVABLES
from pipeline_atoms.dynamics.rdf import compute_radial_distribution
from plugins.atoms.dynamics.toy_calculators import IdealGas, Springs, make_lattice
from plugins.atoms.lennard_jones import make_calculator

ENSEMBLES = ("nve", "nvt_langevin", "nvt_nose_hoover", "npt")


def make_argon():
    return ase.build.bulk("Ar", "fcc", 5.4, cubic=True).repeat((2, 1, 1))


def simulate(folder, atoms, calculator, seed=0, **options):
    """Run and return the summary, all arrays of the group, and the frames that ASE reads."""
    md = MolecularDynamics(name="test", **options)
    with h5py.File(folder / "md.h5", "w") as file:
        group = file.create_group("test")
        summary = run_dynamics(atoms, calculator, md, seed, folder / "md" / "test.extxyz", group)
        arrays = {}
        group.visititems(
            lambda name, item: arrays.update({name: item[:]} if hasattr(item, "shape") else {})
        )
        attributes = dict(group.attrs)
    return summary, arrays, attributes, ase.io.read(folder / "md" / "test.extxyz", index=":")


def test_what_is_stored_is_what_ase_reads(tmp_path):
    start = make_argon()
    summary, arrays, attributes, frames = simulate(
        tmp_path, start, make_calculator(), steps=10, every=4, temperature=50.0, timestep=2.0
    )

    assert len(frames) == 3
    assert list(arrays["time"]) == [0.0, 8.0, 16.0] == [f.info["time_fs"] for f in frames]
    assert set(OBSERVABLES) < set(arrays)
    for n, frame in enumerate(frames):
        assert np.allclose(frame.positions, arrays["positions"][n], atol=1e-5)
        assert np.allclose(frame.cell, arrays["cell"][n], atol=1e-5)
        assert frame.get_potential_energy() == pytest.approx(arrays["potential"][n], abs=1e-6)
        assert frame.get_kinetic_energy() == pytest.approx(arrays["kinetic"][n], rel=1e-5)
        check = frame.copy()
        check.calc = make_calculator()
        assert np.allclose(frame.get_forces(), check.get_forces(), atol=1e-6)
        pressure = -check.get_stress(include_ideal_gas=True)[:3].mean() / units.GPa
        assert arrays["pressure"][n] == pytest.approx(pressure, rel=1e-5)
        largest = np.linalg.norm(check.get_forces(), axis=1).max()
        assert arrays["max_force"][n] == pytest.approx(largest, abs=1e-6)
    dof = 3 * (len(start) - 1)
    assert np.allclose(arrays["temperature"], 2 * arrays["kinetic"] / (dof * units.kB))
    assert np.array_equal(arrays["atomic_numbers"], start.numbers)
    assert attributes["drift_meV_per_atom_per_ps"] == summary["drift_meV_per_atom_per_ps"]
    assert arrays["rdf/Ar-Ar"].shape == arrays["rdf/r"].shape
    parts = [  # of the second half: two frames, each a block
        compute_radial_distribution(
            frames[0].numbers, [(arrays["positions"][n], arrays["cell"][n])]
        )
        for n in (1, 2)
    ]
    one, two = (pairs["Ar-Ar"] for _, pairs in parts)
    assert arrays["rdf/Ar-Ar"] == pytest.approx((one + two) / 2, rel=1e-5)
    assert arrays["rdf_error/Ar-Ar"] == pytest.approx(abs(one - two) / 2, rel=1e-5)
    assert np.array_equal(start.positions, make_argon().positions)
    assert start.calc is None
    assert not start.has("momenta")


def test_drift_and_fluctuation_of_a_known_energy(tmp_path):
    atoms = make_lattice(2)

    class Heating(IdealGas):
        """The energy rises by 2 meV with every call."""

        calls = -1

        def calculate(self, atoms=None, properties=(), system_changes=all_changes):
            super().calculate(atoms, properties, system_changes)
            self.calls += 1
            self.results["energy"] = self.results["free_energy"] = 2e-3 * self.calls

    summary, arrays, _, _ = simulate(tmp_path, atoms, Heating(), steps=20, every=2, timestep=5.0)

    # 2 meV in 5 fs, 8 atoms: 50 meV/atom/ps
    assert np.diff(arrays["potential"]) == pytest.approx(np.full(10, 4e-3))
    assert summary["drift_meV_per_atom_per_ps"] == pytest.approx(50.0)
    assert summary["fluctuation_meV_per_atom"] == pytest.approx(0, abs=1e-9)


def test_a_seed_gives_a_trajectory_and_another_one_another(tmp_path):
    runs = []
    for seed in (1, 1, 2):
        atoms = make_lattice(2)
        _, arrays, _, _ = simulate(
            tmp_path, atoms, Springs(atoms), seed, steps=20, ensemble="nvt_langevin"
        )
        runs.append(arrays["positions"])

    assert np.array_equal(runs[0], runs[1])
    assert not np.allclose(runs[0], runs[2])


def test_what_is_not_known_is_not_stored(tmp_path):
    """The pressure without a stress; volume and radial distribution of a molecule."""
    atoms = make_lattice(2)
    summary, arrays, attributes, _ = simulate(tmp_path, atoms, Springs(atoms), steps=4, every=1)
    assert np.isnan(arrays["pressure"]).all()
    assert summary["pressure_mean_GPa"] is None
    assert "pressure_mean_GPa" not in attributes
    assert summary["volume_mean_A3"] == pytest.approx(216.0)
    atoms = Atoms("Ar3", positions=[[0, 0, 0], [3.8, 0, 0], [0, 3.8, 0]])
    options = {"steps": 4, "every": 1, "temperature": 20.0}
    summary, arrays, _, _ = simulate(tmp_path, atoms, make_calculator(), **options)
    assert summary["volume_mean_A3"] is None
    assert not any(name.startswith("rdf") for name in arrays)


class Broken(Calculator):
    """Predicts no number as soon as atoms move."""

    implemented_properties = ("energy", "forces")

    def calculate(self, atoms=None, properties=(), system_changes=all_changes):
        super().calculate(atoms, properties, system_changes)
        energy = np.nan if self.atoms.get_kinetic_energy() else 0.0
        self.results = {"energy": energy, "forces": np.zeros((len(self.atoms), 3))}


def make_dense_argon():
    atoms = make_argon()
    atoms.positions[1] = atoms.positions[0] + [1.0, 0, 0]
    return atoms


@pytest.mark.parametrize(
    ("atoms", "calculator", "options", "message"),
    [
        (
            make_dense_argon(),
            make_calculator(),
            {"steps": 100, "temperature": 30.0},
            r"stopped at step \d+ of 100: .* where 30 K are wanted",
        ),
        (
            make_lattice(2),
            Broken(),
            {"steps": 9},
            r"stopped at step 1 of 9: the energy is nan eV, at \d+ K in",
        ),
        (
            Atoms("Ar2", positions=[[0, 0, 0], [6.4, 0, 0]]),
            make_calculator(),
            {"steps": 2000, "timestep": 5.0, "temperature": 2000.0},
            r"no atom has a neighbour within 6.5 Å.*holds the frames",
        ),
        *(
            (
                make_argon(),
                make_calculator(),
                {"steps": 9, "timestep": 1e300, "ensemble": ensemble},
                r"stopped at step \d of 9: .* K in .*(1e\+300 fs is too long|barostat)",
            )
            for ensemble in ENSEMBLES
        ),
    ],
    ids=["explosion", "not finite", "falls apart", *("time step " + n for n in ENSEMBLES)],
)
def test_an_early_end_is_explained_and_its_frames_kept(
    tmp_path, atoms, calculator, options, message
):
    with pytest.raises(ValueError, match=message):
        simulate(tmp_path, atoms, calculator, every=1, **options)
    frames = ase.io.read(tmp_path / "md" / "test.extxyz", index=":")
    assert 1 <= len(frames) < options["steps"]
    assert [path.name for path in (tmp_path / "md").iterdir()] == ["test.extxyz"]


@pytest.mark.slow
def test_a_cell_that_collapses_is_explained_and_its_frames_kept(tmp_path):
    """Nothing but heat resists the pressure of an ideal gas."""
    options = {"ensemble": "npt", "pressure": 100.0, "barostat_damping": 200.0, "every": 1}

    with pytest.raises(ValueError, match=r"stopped at step \d+ of 500: .*") as caught:
        simulate(tmp_path, make_lattice(2), IdealGas(), steps=500, **options)

    message = str(caught.value)
    assert re.search(
        r"collapsed .*, at [\d.e+]+ K in [\d.]+ Å³ \(at the start 216\); relax the start", message
    )
    assert "raise barostat_damping (now 200 fs), check pressure (100 GPa)" in message
    frames = ase.io.read(tmp_path / "md" / "test.extxyz", index=":")
    assert len(frames) > 1
    assert frames[0].cell.volume == pytest.approx(216)
    assert frames[-1].cell.volume < frames[0].cell.volume


def test_what_cannot_be_run_is_refused(tmp_path):
    slab = ase.build.fcc111("Ar", (1, 1, 2), a=5.3, vacuum=8.0)
    for atoms, calculator, ensemble, message in (
        (ase.build.bulk("Ar", "fcc", 5.3), make_calculator(), "nve", r"one atom alone"),
        (slab, make_calculator(), "npt", r"periodic in three directions"),
        (make_lattice(2), Springs(make_lattice(2)), "npt", r"npt needs the stress"),
        (make_lattice(2, "Kr", 4.0), make_calculator(), "nve", r"on Ar, not on Kr"),
    ):
        with pytest.raises(ValueError, match=message):
            simulate(tmp_path, atoms, calculator, ensemble=ensemble, steps=2)
