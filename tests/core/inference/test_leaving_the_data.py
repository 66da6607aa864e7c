"""A trained committee against a potential that is known everywhere: ASE's Lennard-Jones argon."""

import ase.io
import numpy as np
import pytest

from core.inference.learned_pairs import train_committee
from core.inference.lennard_jones import make_ase_lennard_jones
from pipeline_core import store
from pipeline_core.inference.simulations import simulate_run

COLD = {"name": "cold", "steps": 40, "every": 1, "timestep": 4.0, "temperature": 20.0}
HOT = COLD | {"name": "hot", "steps": 60, "temperature": 6000.0}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    infer = {"md": [one | {"ensemble": "nvt_langevin"} for one in (COLD, HOT)]}
    run = train_committee(tmp_path_factory.mktemp("pairs"), infer)
    simulate_run(run)
    return run


@pytest.mark.slow
def test_intervals_hold_what_was_held_out(run):
    report = store.read_json(run.metrics)["committee"]["splits"]["test"]
    assert 0.90 <= report["forces"]["coverage"] <= 0.98
    assert 0.90 <= report["energy_per_atom"]["coverage"] <= 0.98
    assert report["forces"]["count"] == 720


def read_frames(run, name):
    """Return half widths, the limit, and how wrong forces are, frame by frame.

    The last is the largest length of an error over the length of the true force, of atoms on which
    forces are at least as large as on most of the data.
    """
    with store.open_artifact(run.inference, "inference") as file:
        half = file[name]["force_uncertainty"][:]
        limit = file[name].attrs["flag_above_eV_per_A"]
    wrong = []
    for frame in ase.io.read(run.folder / f"md/{name}.extxyz", index=":"):
        predicted = frame.get_forces()
        frame.calc = make_ase_lennard_jones()
        true = np.linalg.norm(frame.get_forces(), axis=1)
        error = np.linalg.norm(predicted - frame.get_forces(), axis=1)
        wrong.append((error / np.maximum(true, 0.1)).max())
    return half, limit, np.array(wrong)


@pytest.mark.slow
def test_hot_dynamics_is_flagged_before_forces_are_wrong_by_a_factor_of_two(run):
    half, limit, wrong = read_frames(run, "hot")
    flagged, doubtful = np.flatnonzero(half > limit), np.flatnonzero(wrong > 0.5)
    assert len(doubtful), "the run stays where the model is right, so that nothing is shown"
    assert flagged[0] <= doubtful[0]


@pytest.mark.slow
def test_cold_dynamics_is_not(run):
    half, limit, wrong = read_frames(run, "cold")
    assert (half <= limit).all()
    assert (wrong < 0.5).all()
