"""Errors of the weights that a training starts from, before its first step.

Oracle: the validation of the training that made the weights.
"""

import pytest
import torch

import toy_potential as toy
from core.training.test_resume import assert_same_bits
from pipeline_core.figures import results
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
