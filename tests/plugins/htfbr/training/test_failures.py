"""Trainings of HT-FBR that diverge or run out of memory keep what they have, and say what to do."""

import json
import logging
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from pipeline_core.training.model_file import load_archive, load_model, save_archive
from pipeline_htfbr.evaluation.evaluate import evaluate_surface
from pipeline_htfbr.options import HTTrainOptions
from pipeline_htfbr.training import fit as fit_module
from pipeline_htfbr.training import resident, train_surface
from pipeline_htfbr.training.descent import Descent
from pipeline_htfbr.training.solver import solve
from plugins.htfbr.fits import SECTIONS
from records import read_history

BATCHES = {"batch_size": 32}
SOLVER = {k: v for k, v in HTTrainOptions().model_dump().items() if k in SECTIONS["train"]}
"""The usual options of these tests, as the solver wants them."""
DIVERGING = {"optimizer": {"lr": 1e20}, "precision": "32-true"}


def fail(run):
    with pytest.raises(ValueError, match=f"^{run.experiment}|^out of memory") as error:
        train_surface(run)
    return str(error.value)


@pytest.fixture
def bad_point(monkeypatch):
    """In the second step of the fifth epoch one point has an energy whose square overflows."""
    select = resident.select_steps

    def select_spoiled(table, plan, device):
        steps = select(table, plan, device)

        def spoil(epoch):
            for number, step in enumerate(steps(epoch)):
                if (epoch, number) == (4, 1):
                    step.batches[0].energies[7] += 1e200
                yield step

        return spoil

    spoiled = replace(resident.RESIDENT, steps=select_spoiled)
    monkeypatch.setattr(resident, "RESIDENT", spoiled)


@pytest.mark.slow
@pytest.mark.usefixtures("bad_point")
def test_the_best_model_stays_and_advice_continues_the_training(fit, monkeypatch, caplog):
    run = fit(BATCHES)
    message = fail(run)
    assert "diverged in epoch 6: the losses (" in message
    assert "not finite after its last step, which they were after epoch 4" in message
    note = json.loads((run.state / "diverged.json").read_text())
    assert note["state"] == {"epoch": 4, "step": 0}
    assert "lower train.optimizer.lr (now 0.02), set train.clip_norm" in message
    assert "continues after epoch 4" in message
    assert f"{run.model} is the best model so far" in message
    lines = read_history(run)
    assert [line["epoch"] for line in lines] == [2, 4]
    assert json.loads(load_model(run.model)["provenance"])["unfinished"] == "epoch 4 of 8"
    with caplog.at_level(logging.WARNING):
        assert evaluate_surface(run)
    assert "unfinished training (epoch 4 of 8)" in caplog.text

    monkeypatch.undo()
    lower = fit(BATCHES | {"optimizer": {"name": "adamw", "lr": 0.002, "weight_decay": 1e-3}})
    train_surface(lower)
    assert "train.optimizer.lr 0.002 instead of 0.02" in caplog.text
    assert "afresh" not in caplog.text
    after = read_history(lower)
    assert after[:2] == lines
    assert [line["lr"] for line in after] == [0.02, 0.02, 0.002, 0.002]
    assert "unfinished" not in json.loads(load_model(run.model)["provenance"])


def test_a_rate_that_is_too_high_is_noticed_before_a_model_is_written(fit):
    run = fit(DIVERGING)
    message = fail(run)
    assert re.search(r"diverged in epoch 2: the losses \((inf|nan), (inf|nan)\)", message)
    assert not run.model.exists()
    assert not (run.state / "last.pt").exists()


def test_weights_that_diverge_in_the_last_step_before_a_record(fit):
    run = fit({"optimizer": {"lr": 1e200}, "record_every": 1})
    assert "diverged in epoch 1: the losses (inf, inf) or" in fail(run)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("partition", "cure"),
    [
        ({}, "up to 80 points; set partition.capacity below 80, with the same result, or lower"),
        ({"capacity": 1.0}, "up to 1 points; lower graph.degree or model.rank"),
    ],
)
def test_want_of_memory_in_a_step_is_named_with_the_cure(fit, monkeypatch, partition, cure):
    run, backward = fit(partition=partition), Descent._backward

    def run_out(self, *args):
        if run.history.exists() and len(read_history(run)) == 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried")
        backward(self, *args)

    monkeypatch.setattr(Descent, "_backward", run_out)
    message = fail(run)
    assert f"out of memory in epoch 5 on rank 0, whose passes hold {cure}" in message
    assert "continues after epoch 4" in message
    assert json.loads(load_model(run.model)["provenance"])["unfinished"] == "epoch 4 of 8"


@pytest.mark.parametrize(
    ("method", "module", "name", "message"),
    [
        ("resident", fit_module, "tabulate", "for tree and points of points; lower graph.degree"),
        ("solver", solve, "make_problem", r"in the solver of points; .*max_terms \(now 6000\)"),
    ],
)
def test_want_of_memory_before_the_first_step(fit, monkeypatch, method, module, name, message):
    def run_out(*args, **options):
        np.zeros(1 << 50)

    monkeypatch.setattr(module, name, run_out)
    run = fit({"method": method, **SOLVER} if method == "solver" else {})
    with pytest.raises(ValueError, match=f"^out of memory {message}"):
        train_surface(run)


@pytest.mark.slow
def test_a_state_of_unknown_content_is_explained(fit):
    train_surface(fit({"epochs": 4}))
    run = fit()
    path = run.state / "last.pt"
    state = load_archive(path, "")
    state["learner"]["optimizer"] = {"unknown": 1}
    save_archive(path, state, {})
    words = "not a state that this version of the package can continue.* remove the file, and"
    with pytest.raises(ValueError, match=rf"^{path}: {words}"):
        train_surface(run)
