"""Errors of the weights that a training starts from, before its first step.

Oracles: the validation of the training that made the weights, numpy's moments of numbers that are
known, and a plain loop of torch's optimizer that starts from the same weights.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

import toy_potential as toy
from core.training.test_resume import assert_same_bits
from pipeline_atoms.potential.start_errors import explain_start
from pipeline_core.config.sections import TrainOptions
from pipeline_core.distributed.ranks import Ranks
from pipeline_core.distributed.world import World
from pipeline_core.figures import results
from pipeline_core.task import Quantity
from pipeline_core.training.start_errors import StartErrors
from pipeline_core.training.trainer import train_run
from records import read_history


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run whose model is that of its last epoch."""
    run = toy.make_run(tmp_path_factory.mktemp("trained"), {"epochs": 3, "optimizer": {"lr": 3e-3}})
    assert train_run(run)["best_epoch"] == 3
    return run


def tune(folder, trained, **train):
    return toy.make_run(folder, {"start_from": str(trained.model), "epochs": 2} | train)


def test_they_are_what_the_training_before_ended_with(trained, tmp_path, caplog):
    before = read_history(trained)[-1]
    toy.EPOCHS_HEARD.clear()
    run = tune(tmp_path, trained)
    train_run(run)
    assert "differ from those of the dataset" not in caplog.text
    lines = read_history(run)
    assert [line["epoch"] for line in lines] == [0, 1, 2]
    assert lines[0] == {
        "epoch": 0,
        "train": None,
        "val": pytest.approx(before["val"], rel=1e-12),
        "mae": pytest.approx(before["mae"], rel=1e-12),
    }
    assert lines == toy.EPOCHS_HEARD
    assert results.read_history(run) == lines[1:]
    assert results.read_history(run, with_start=True) == lines


@pytest.mark.slow
def test_of_random_weights_and_without_validation_nothing_is_told(trained, tmp_path):
    start = {"start_from": str(trained.model)}
    for train, model in (({}, {}), (start, {"n_val": 0})):
        run = toy.train(tmp_path, train | {"epochs": 1}, model=model)
        assert [line["epoch"] for line in read_history(run)] == [1]


@pytest.mark.slow
def test_a_killed_fine_tuning_tells_them_once(trained, tmp_path):
    """Killed in its first epoch, after a state was saved there."""
    run = tune(tmp_path / "killed", trained, checkpoint_steps=1)
    toy.train_and_kill(tmp_path / "killed", 6)
    saved = torch.load(run.state / "last.pt", weights_only=True)["progress"]
    assert (saved["epoch"], len(saved["history"])) == (0, 1)
    assert saved["step"]
    toy.EPOCHS_HEARD.clear()
    train_run(run)
    assert [record["epoch"] for record in toy.EPOCHS_HEARD] == [1, 2]
    whole = tune(tmp_path / "whole", trained, checkpoint_steps=1)
    train_run(whole)
    assert_same_bits(run, whole)


@pytest.mark.slow
@pytest.mark.mpi
def test_two_ranks_tell_the_same(trained, tmp_path):
    """Their sums are rounded otherwise."""
    one, two = tune(tmp_path / "one", trained), tune(tmp_path / "two", trained)
    train_run(one)
    toy.train_on_ranks(tmp_path / "two", 2)
    first, second = read_history(one)[0], read_history(two)[0]
    assert second["val"] == pytest.approx(first["val"], rel=1e-10)
    assert second["mae"] == pytest.approx(first["mae"], rel=1e-10)


def shift_labels(monkeypatch, per_atom):
    """Let the dataset have energies of another level of theory."""
    whole = toy.sample

    def sample(seed, missing):
        made = whole(seed, missing)
        return made | {"energy": made["energy"] + per_atom * len(made["atomic_numbers"])}

    monkeypatch.setattr(toy, "sample", sample)


@pytest.mark.parametrize(
    ("choice", "cure"),
    [
        ("model", "set train.reference_energies: dataset"),
        ("dataset", "check `reference_energies` of the dataset file"),
    ],
)
def test_energies_of_another_level_of_theory(trained, tmp_path, monkeypatch, caplog, choice, cure):
    shift_labels(monkeypatch, 500.0)
    run = tune(tmp_path, trained, reference_energies=choice, optimizer={"lr": 1e-6})
    train_run(run)
    assert "its energies differ from those of the dataset by -500 eV/atom" in caplog.text
    assert cure in caplog.text


def compare(energies, forces=0.5, n_atoms=2):
    """Return the warnings for differences of energies an atom, and forces of 1 eV/Å."""
    differences = torch.as_tensor(energies, dtype=torch.float64)
    n = len(differences)
    batch = {
        "atom_offsets": n_atoms * torch.arange(n + 1),
        "energy": torch.linspace(-3, 5, n, dtype=torch.float64),
        "forces": torch.ones(n, 3, dtype=torch.float64),
    }
    outputs = {
        "energy": batch["energy"] + n_atoms * differences,
        "forces": forces * batch["forces"],
    }
    quantities = [Quantity("energy", per_atom=True), Quantity("forces")]
    ranks = Ranks(World(), torch.device("cpu"))
    errors = StartErrors(quantities, ranks)
    for rows in (slice(0, n // 2), slice(n // 2, n)):
        part = {name: tensor[rows] for name, tensor in outputs.items()}
        offsets = n_atoms * torch.arange(len(part["energy"]) + 1)
        labels = {name: batch[name][rows] for name in outputs} | {"atom_offsets": offsets}
        errors.add(part, labels)
    return list(explain_start(TrainOptions(start_from="x.pt"), errors.reduce()))


@pytest.mark.parametrize("scatters", [1.9, 2.1])
def test_two_scatters_are_the_limit(scatters):
    """Numpy's moments: the mean is so many standard deviations."""
    noise = np.random.default_rng(0).normal(size=40)
    noise = (noise - noise.mean()) / noise.std()
    found = compare(0.1 * (noise + scatters))
    assert len(found) == (scatters > 2)
    if found:
        assert "by +0.21 eV/atom, with a scatter of 0.1," in found[0]
    assert not compare([5.0])  # one structure has no scatter
    assert not compare(np.full(10, 0.009))  # too small to matter
    assert len(compare(np.full(10, 0.011))) == 1


@pytest.mark.parametrize(("factor", "told"), [(0.01, False), (0.0, True), (-1.0, True)])
def test_forces_that_are_no_better_than_zero(factor, told):
    found = compare(np.zeros(10), factor)
    assert len(found) == told
    if told:
        assert f"{abs(1 - factor):.3g} eV/Å, the error of zero forces 1;" in found[0]
