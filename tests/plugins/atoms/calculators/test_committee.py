"""Oracle: NumPy's mean and deviation of ASE's Lennard-Jones potentials, of known depths."""

import shutil
from dataclasses import replace

import ase.build
import ase.io
import numpy as np
import pytest
from ase.calculators.lj import LennardJones

from pipeline_atoms.calculators.committee import Committee, is_committee, load_committee
from pipeline_atoms.ensembles.calibration import Calibration
from pipeline_atoms.simulations import simulate_run
from pipeline_core.artifacts import store
from pipeline_core.evaluation.evaluate import evaluate_run
from pipeline_core.fields import SPLITS
from pipeline_core.project.lineage import find_fault
from pipeline_core.task import build_task
from pipeline_core.training.model_file import load_archive, save_archive, write_model
from plugins.atoms.argon import load_run, make_run

SCALES = (1.1, 0.97, 1.05)
MD = {"name": "warm", "steps": 6, "every": 2, "temperature": 30.0, "timestep": 2.0}


@pytest.fixture
def atoms():
    atoms = ase.build.bulk("Ar", "fcc", 5.3, cubic=True).repeat((2, 1, 1))
    atoms.rattle(0.15, seed=1)
    return atoms


def make_members():
    return [LennardJones(epsilon=0.01 * scale, sigma=3.4, rc=6.0) for scale in SCALES]


def test_mean_and_spread_are_those_of_the_members(atoms):
    members = make_members()
    atoms.calc = committee = Committee(members)

    energies = np.array([m.get_potential_energy(atoms) for m in members])
    forces = np.array([m.get_forces(atoms) for m in members])
    stress = np.array([m.get_stress(atoms) for m in members])
    assert atoms.get_potential_energy() == pytest.approx(energies.mean(), rel=1e-12)
    assert np.allclose(atoms.get_forces(), forces.mean(axis=0), atol=1e-12)
    assert np.allclose(atoms.get_stress(), stress.mean(axis=0), atol=1e-12)
    results = committee.results
    assert results["energy_spread"] == pytest.approx(np.std(energies / 8, ddof=1), rel=1e-12)
    assert np.allclose(results["forces_spread"], forces.std(axis=0, ddof=1), atol=1e-12)
    assert "forces_uncertainty" not in results


def test_the_stress_is_left_out_without_a_cell(atoms):
    atoms.pbc, atoms.cell = False, None
    atoms.calc = Committee(make_members())
    assert np.isfinite(atoms.get_potential_energy())


def make_committee(folder, **sections):
    """Return the first run of a committee of known scales, of which all are evaluated."""
    make_run(folder, members=3, **sections)
    run = load_run(folder)
    for member, scale in zip((run, *run.members), SCALES, strict=True):
        built = build_task(member)
        weights = {**built.module.state_dict()}
        weights["scale"] = weights["scale"] * scale
        split = next(s for s in SPLITS if len(built.samples(s)))
        write_model(member, built, weights, (split, np.arange(1)), {})
    for member in (*run.members, run):
        evaluate_run(replace(member, device="cpu"))
    return run


STOPPING = MD | {"name": "stopped", "uncertainty": {"stop_above": 1e-6, "flag_above": 1e-6}}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_committee(tmp_path_factory.mktemp("committee"), infer={"md": [MD, STOPPING]})


def test_members_are_runs_with_seeds_of_their_own(run):
    assert [one.variant for one in run.members] == ["base.2", "base.3"]
    assert [one.seed for one in run.members] == [run.seed + 1, run.seed + 2]
    assert not run.members[0].sections["infer"].md
    assert run.members[0].graph == run.graph
    assert run.list_awaited("evaluate") == [one.predictions for one in run.members]
    assert run.list_inputs("infer")["metrics"] == run.metrics
    assert find_fault(run, "metrics") is None


def test_metrics_hold_the_errors_of_the_mean(run):
    content = store.read_json(run.metrics)
    single = content["splits"]["test"]["quantities"]["forces"]["mae"]
    joint = content["committee"]["splits"]["test"]["forces"]
    ratio = (np.mean(SCALES) - 1) / (SCALES[0] - 1)  # all errors are the labels times scale - 1
    assert joint["mae"] == pytest.approx(ratio * single, rel=1e-3)
    # So is the spread: each error is the same multiple of it but for the pooling of components.
    factor = content["committee"]["calibration"]["energy_per_atom"]["factors"]["0.5"]
    assert factor == pytest.approx((np.mean(SCALES) - 1) / np.std(SCALES, ddof=1), rel=0.1)


def test_dynamics_store_how_sure_they_are_and_stop(run):
    summary = simulate_run(run)
    frames = ase.io.read(run.folder / "md/warm.extxyz", index=":")
    with store.open_artifact(run.inference, "inference") as file:
        widest = file["warm/force_uncertainty"][:]
        energy = file["warm/energy_uncertainty"][:]
    assert len(frames) == 4
    assert np.allclose([f.arrays["forces_uncertainty"].max() for f in frames], widest, atol=1e-7)
    assert np.allclose([f.info["energy_uncertainty"] / len(f) for f in frames], energy, atol=1e-7)
    assert summary["warm"]["stopped_at_step"] is None
    assert summary["stopped"]["stopped_at_step"] == 0
    assert summary["stopped"]["flagged_frames"] == summary["stopped"]["frames"] == 1


def test_a_committee_is_loaded_from_files_alone(run, tmp_path, atoms):
    shutil.copytree(run.folder.parents[2], tmp_path, dirs_exist_ok=True)
    run = load_run(tmp_path)
    assert is_committee(run.folder)
    assert not is_committee(run.members[0].folder)
    atoms.calc = committee = load_committee(run.folder, "cpu", run.registry)
    single = committee.members[0]
    ratio = np.mean(SCALES) / SCALES[0]
    assert np.allclose(atoms.get_forces(), ratio * single.get_forces(atoms), atol=1e-5)
    assert committee.results["forces_uncertainty"].shape == (len(atoms),)
    assert isinstance(committee.calibrations["forces"], Calibration)
    model = run.members[0].model
    save_archive(model, load_archive(model, "") | {"elements": ["Ar"]}, {})
    with pytest.raises(ValueError, match=r"is not the model of 'base\.2'"):
        load_committee(run.folder, "cpu", run.registry)
