"""The stage: from a trained model on disk to trajectories; oracle: ASE's Lennard-Jones."""

import ase.io
import numpy as np
import pytest
import torch
from ase.constraints import FixAtoms

from pipeline_atoms.calculators.loading import load_calculator
from pipeline_atoms.dynamics.structures import read_start_structure
from pipeline_atoms.simulations import simulate_run
from pipeline_core.artifacts import store
from pipeline_core.stages.builtin import load_registry
from pipeline_core.system import memory
from plugins.atoms.argon import REFERENCES, SCALE, make_run, make_structures

SHORT = {"steps": 6, "every": 2, "temperature": 30.0, "timestep": 2.0}


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A run that asks for nothing, which tests leave as it is."""
    return make_run(tmp_path_factory.mktemp("plain"))


@pytest.mark.slow
def test_md_runs_of_an_experiment(tmp_path, plain):
    md = [
        {"name": "first", **SHORT},
        {"name": "second", **SHORT, "ensemble": "npt", "start": "val:1", "repeat": [1, 2, 1]},
    ]
    run = make_run(tmp_path, infer={"md": md})
    summary = run.registry.select_hook("infer", "argon")(run=run)
    assert list(summary) == ["first", "second"]
    with store.open_artifact(run.inference, "inference") as file:
        assert file["first/positions"].shape[0] == 4
        assert file["second"].attrs["ensemble"] == "npt"
        assert len(file["second/atomic_numbers"]) == 2 * len(make_structures()[4])
        drift = file["first"].attrs["drift_meV_per_atom_per_ps"]
    assert drift == summary["first"]["drift_meV_per_atom_per_ps"]
    for name in ("first", "second"):
        assert len(ase.io.read(run.folder / "md" / f"{name}.extxyz", index=":")) == 4
    assert simulate_run(plain) == {}
    with store.open_artifact(plain.inference, "inference") as file:
        assert list(file) == []


def test_a_model_that_is_not_compiled_is_refused_by_name(tmp_path):
    run = make_run(tmp_path, infer={"md": [{"name": "first", **SHORT}], "compile": True})

    with pytest.raises(ValueError, match=r"models of \w+ are not compiled; use it without infer"):
        simulate_run(run)
    assert not run.inference.exists()


@pytest.mark.slow
def test_an_explosion_leaves_no_inference_file(tmp_path):
    md = {"name": "hot", "steps": 50, "timestep": 500.0, "temperature": 300.0}
    run = make_run(tmp_path, infer={"md": [md]})

    with pytest.raises(ValueError, match=r"time step of 500 fs is too long"):
        simulate_run(run)
    assert not run.inference.exists()
    assert (run.folder / "md" / "hot.extxyz").exists()


def test_start_structures(tmp_path, plain):
    atoms = make_structures()[5]
    start = read_start_structure(plain, "test:1", (2, 1, 1))
    assert np.allclose(start.positions, atoms.repeat((2, 1, 1)).positions)
    assert start.symbols.get_chemical_formula() == atoms.repeat((2, 1, 1)).get_chemical_formula()
    atoms.calc = None
    ase.io.write(tmp_path / "start.cif", atoms)
    from_file = read_start_structure(plain, str(tmp_path / "start.cif"))
    assert np.allclose(from_file.get_scaled_positions(), atoms.get_scaled_positions(), atol=1e-6)
    heavy = ase.Atoms("H2", positions=[[0, 0, 0], [0, 0, 0.8]], masses=[2.014, 1.008])
    ase.io.write(tmp_path / "hd.traj", heavy)
    masses = read_start_structure(plain, str(tmp_path / "hd.traj")).get_masses()
    assert masses.tolist() == [2.014, 1.008]


def place(distance, **more):
    return ase.Atoms("Ar2", positions=[[0, 0, 0], [0, 0, distance]], **more)


FILES = {
    "dense.xyz": place(0.3),
    "dimer.xyz": place(3.8),
    "held.traj": place(3.8, constraint=FixAtoms([0])),
}


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ("test:4", r"has 4 samples in the split 'test', numbered from 0"),
        ("missing.cif", r"'missing.cif' is neither split:number nor a file that ASE can read"),
        ("tset:0", r"'tset:0' is neither split:number nor a file"),
        ("dense.xyz", r"dense.xyz': the distance of atoms 0 .* or relax the str"),
        ("dimer.xyz", r"no cell vector 2 along which to repeat"),
        ("held.traj", r"held\.traj' holds atoms fixed \(FixAtoms\)"),
    ],
)
def test_a_start_that_cannot_be_is_explained(tmp_path, plain, start, message):
    if start in FILES:
        ase.io.write(tmp_path / start, FILES[start])
        start = str(tmp_path / start)
    with pytest.raises(ValueError, match=message):
        read_start_structure(plain, start, (1, 3 if "dimer" in start else 1, 1))


@pytest.mark.parametrize("start", ["test:1", "start.cif"])
def test_copies_for_which_there_is_no_memory_are_refused(tmp_path, plain, monkeypatch, start):
    atoms = make_structures()[5]
    atoms.calc = None
    ase.io.write(tmp_path / "start.cif", atoms)
    place = start if ":" in start else str(tmp_path / start)
    monkeypatch.setattr(memory, "find_free_memory", lambda: 1e9)
    n_atoms = len(atoms) * 10**6
    message = rf"infer\.md: {n_atoms} atoms take at least .* 1 GB of memory are free; lower repeat"
    with pytest.raises(ValueError, match=message):
        read_start_structure(plain, place, (10**4, 10**2, 1))
    assert len(read_start_structure(plain, place, (10, 2, 1))) == 20 * len(atoms)


def compute_expected(atoms):
    base = sum(REFERENCES[s] for s in atoms.symbols)
    return base + SCALE * atoms.get_potential_energy(), SCALE * atoms.get_forces()


def test_a_model_alone_is_enough_for_a_calculator(tmp_path):
    run = make_run(tmp_path)
    moved = tmp_path / "elsewhere" / "argon-2024.pt"
    moved.parent.mkdir()
    run.model.rename(moved)
    run.data.unlink()
    run.graph.unlink()
    torch.manual_seed(11)
    before = torch.random.get_rng_state()

    calculator = load_calculator(moved, dtype=torch.float64, registry=run.registry)

    assert torch.equal(torch.random.get_rng_state(), before)
    assert calculator.elements == ("Ar", "Kr")
    atoms = make_structures(1)[0]
    energy, forces = compute_expected(atoms)
    atoms.calc = calculator
    assert atoms.get_potential_energy() == pytest.approx(energy, abs=1e-6)
    assert np.allclose(atoms.get_forces(), forces, atol=1e-6)


def test_a_file_that_is_no_model_of_an_installed_plugin_is_explained(tmp_path, plain):
    path = tmp_path / "model.pt"
    path.write_text("weights")
    for model, message in (
        (plain.model, r"no plugin 'argon' is installed"),
        (path, r"model.pt: its contents are damaged: its end is missing"),
    ):
        with pytest.raises(ValueError, match=message):
            load_calculator(model, registry=load_registry([], []))
