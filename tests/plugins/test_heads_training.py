"""Trainings by heads, on the same structures at two levels of theory.

Oracle: the second level is the first times 1.3 and shifted by element, exactly, so that one
prediction for both misses them by half of their difference on average, by the triangle inequality;
of a training on two ranks, the same on one.
"""

import json
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from forked_ranks import run_on_ranks
from pipeline_atoms.calculators.loading import load_calculator
from pipeline_core.testing.projects import call, prepare
from pipeline_core.training.model_file import load_model
from plugins.chgnet.model.test_heads import GRAPH, SMALL
from plugins.two_levels import HEADS, HIGH, LOW, write_levels
from records import read_history
from tiers import exhaustive, run_first

pytestmark = pytest.mark.slow

TRAIN = {
    "epochs": 12,
    "batch_size": 4,
    "loss": {"energy": {"weight": 10.0}, "forces": {}},
    "optimizer": {"lr": 1e-2},
    "schedule": {"name": "cosine"},
}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Both levels, and trainings on them."""
    single = {"model": {"heads": ["default"]}}
    tuned = {"epochs": 6, "start_from": "variant:first", "optimizer": {"lr": 3e-3}}
    variants = {
        "chgnet": {
            "plugin": "chgnet",
            "model": SMALL | {"energy_heads": HEADS},
            "graph": GRAPH,
            "train": {"optimizer": {"lr": 3e-3}},
        },
        "one": {"dataset": "mixed", **single},
        "first": {"dataset": "low", **single},
        "replayed": {"train": tuned},
        "plain": {
            "dataset": "high",
            **single,
            "train": {**tuned, "reference_energies": "dataset"},
        },
    }
    folder = tmp_path_factory.mktemp("heads")
    return write_levels(folder, train=TRAIN, variants=variants)


def train(project, variant="base"):
    """Return a run that is trained and evaluated."""
    run = replace(project.run("levels", variant), device="cpu")
    if not run.metrics.exists():
        for stage in ("data", "graph", "partition", "train", "evaluate"):
            call(run, stage)
    return run


def read_val(run):
    return json.loads(run.metrics.read_text())["splits"]["val"]


def measure_errors(run, frames, **choice):
    """Return the mean error of energies, eV/atom."""
    calculator = load_calculator(run.model, **choice)
    errors = [
        calculator.get_potential_energy(atoms) - atoms.get_potential_energy() for atoms in frames
    ]
    return float(np.mean([abs(e) / len(a) for e, a in zip(errors, frames, strict=True)]))


def compute_floor():
    """Return the least error of one prediction for both levels, eV/atom."""
    pairs = zip(LOW, HIGH, strict=True)
    apart = [abs(a.get_potential_energy() - b.get_potential_energy()) / len(a) for a, b in pairs]
    return 0.5 * float(np.mean(apart))


@pytest.mark.parametrize("variant", run_first(["base", "chgnet"]))
def test_two_heads_learn_both_levels(project, variant):
    both, floor = train(project, variant), compute_floor()
    found = read_val(both)["heads"]
    assert list(found) == sorted(HEADS)
    for head, frames in zip(HEADS, (LOW, HIGH), strict=True):
        assert measure_errors(both, frames, head=head) < 0.3 * floor
        assert found[head]["energy_per_atom"]["mae"] < 0.3 * floor


@exhaustive
def test_one_head_cannot(project):
    single, floor = train(project, "one"), compute_floor()
    assert measure_errors(single, LOW) + measure_errors(single, HIGH) >= 2 * floor - 1e-6
    assert "heads" not in read_val(single)


def test_replay_keeps_what_plain_fine_tuning_loses(project):
    first, replayed, plain = (train(project, name) for name in ("first", "replayed", "plain"))
    before = measure_errors(first, LOW)
    assert measure_errors(replayed, LOW, head="low") < 1.5 * before
    assert measure_errors(plain, LOW) > 5 * before
    assert measure_errors(replayed, HIGH, head="high") < 5 * before


@pytest.mark.mpi
def test_two_ranks_train_and_evaluate_as_one(tmp_path):
    options = {**TRAIN, "epochs": 2, "precision": "64-true", "head_weights": {"high": 2.0}}
    one, two = (
        replace(write_levels(tmp_path / name, train=options).run("levels"), device="cpu")
        for name in ("one", "two")
    )
    for run in (one, two):
        prepare(run)
    places = [word for n in ("workflows", "results") for word in (f"--{n}", tmp_path / "two" / n)]
    for stage in ("train", "evaluate"):
        call(one, stage)
        command = [stage, "--experiment", "levels", "--device", "cpu", *places]
        done = run_on_ranks("pipeline_core.cli", command, 2)
        assert done.returncode == 0, done.stderr
    lines = zip(read_history(two), read_history(one), strict=True)
    for ours, expected in lines:
        for name in ("train", "val", "mae"):
            assert ours[name] == pytest.approx(expected[name], rel=1e-8)
    ours, expected = (load_model(run.model)["weights"] for run in (two, one))
    for name, weight in expected.items():
        torch.testing.assert_close(ours[name], weight, rtol=1e-8, atol=1e-8)
    ours, expected = (read_val(run)["heads"] for run in (two, one))
    assert list(ours) == sorted(HEADS)
    for head, name in product(HEADS, ("energy", "energy_per_atom", "forces")):
        errors = expected[head][name]
        for key in ("count", "mae", "rmse"):
            assert ours[head][name][key] == pytest.approx(errors[key], rel=1e-6)
