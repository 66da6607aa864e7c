"""The best model so far is on disk while a training lasts, and after it was killed.

Oracle: the model of a training that ended with that epoch, bit for bit.
"""

import json
import logging

import numpy as np
import pytest
import torch
from ase import Atoms

import toy_potential as toy
from pipeline_atoms.calculators.loading import load_calculator
from pipeline_core import hookimpl
from pipeline_core.training.model_file import check_probe, load_model
from pipeline_core.training.trained_model import BEST, find_model_file
from pipeline_core.training.trainer import train_run
from records import assert_same_weights, read_history


def assert_same_model(path, run):
    """The weights, and all by which they are known again."""
    found, wanted = load_model(path), load_model(run.model)
    assert_same_weights(found["weights"], wanted["weights"])
    for key in ("plugin", "metadata", "dtype", "elements", "experiment"):
        assert found[key] == wanted[key]
    outputs = wanted["probe"]["outputs"]
    assert all(torch.equal(found["probe"]["outputs"][name], x) for name, x in outputs.items())


STEADY = {"optimizer": {"lr": 3e-3}}
"""With this rate each epoch is better than the one before."""


class BestFiles:
    """Reads the best model so far after each epoch, and its weights before each step."""

    def __init__(self, run):
        self.epochs, self.weights = [], []
        run.registry.manager.register(self)

    @hookimpl
    def epoch(self, run):
        content = load_model(run.folder / BEST)
        check_probe(toy.PairPotential(8), content, run.folder / BEST)
        self.epochs.append(json.loads(content["provenance"])["epoch"])

    @hookimpl
    def progress(self, run, position):
        path = run.folder / BEST
        self.weights.append(load_model(path)["weights"] if path.exists() else None)


@pytest.mark.slow
def test_after_each_epoch_it_is_that_of_the_best(tmp_path):
    """The rate is too high for steady progress. A finished training has its model alone."""
    run = toy.make_run(tmp_path, {"epochs": 6, "optimizer": {"lr": 0.3}})
    files = BestFiles(run)
    summary = train_run(run)
    losses = [record["val"]["loss"] for record in read_history(run)]
    best = [1 + losses.index(min(losses[:n])) for n in range(1, 7)]
    assert len(set(best)) < 6
    assert files.epochs == best
    assert not (run.folder / BEST).exists()
    assert find_model_file(run.folder) == run.model
    assert summary["best_epoch"] == best[-1] < 6
    shorter = toy.train(tmp_path / "shorter", {"epochs": best[-1], "optimizer": {"lr": 0.3}})
    assert_same_model(run.model, shorter)


@pytest.mark.slow
def test_after_a_kill_it_is_used_with_a_warning(tmp_path, caplog):
    """Killed in the third epoch, it predicts what a training of two does."""
    run = toy.make_run(tmp_path / "killed", STEADY | {"epochs": 4})
    toy.train_and_kill(tmp_path / "killed", 13)
    two = toy.train(tmp_path / "two", STEADY | {"epochs": 2})
    assert not run.model.exists()
    assert_same_model(run.folder / BEST, two)
    assert json.loads(load_model(run.folder / BEST)["provenance"])["unfinished"] == "epoch 2 of 4"
    atoms = Atoms("H3", positions=[[0, 0, 0], [1.2, 0, 0], [0.4, 1.5, 0.3]])
    energies = []
    for path in (run.folder, run.model, two.model):
        atoms.calc = load_calculator(path, dtype=torch.float64, registry=run.registry)
        energies.append((atoms.get_potential_energy(), atoms.get_forces()))
    assert caplog.text.count("its best model so far, of epoch 2") == 2
    assert energies[0][0] == energies[1][0] == energies[2][0]
    assert np.array_equal(energies[0][1], energies[2][1])
    train_run(run)
    assert find_model_file(run.folder) == run.model
    assert not (run.folder / BEST).exists()


@pytest.mark.slow
def test_it_is_there_again_when_a_training_goes_on_and_not_in_another(tmp_path, caplog):
    """As Snakemake calls it: without the model of before, and no epoch may be better."""
    before = toy.train(tmp_path, STEADY | {"epochs": 2})
    weights = load_model(before.model)["weights"]
    before.model.unlink()
    longer = toy.make_run(tmp_path, STEADY | {"epochs": 3})
    files = BestFiles(longer)
    train_run(longer)
    assert all(torch.equal(tensor, weights[name]) for name, tensor in files.weights[0].items())
    longer.model.rename(longer.folder / BEST)
    other = toy.make_run(tmp_path, STEADY | {"epochs": 2, "batch_size": 5})
    files = BestFiles(other)
    with caplog.at_level(logging.WARNING):
        train_run(other)
    assert "starts afresh" in caplog.text
    assert files.weights[0] is None
