"""Trainings that stop, and go on as if they had not.

Oracle: the same training without an interruption, to the last bit.
"""

import json
import logging

import pytest
import torch

from forked_ranks import run_on_ranks
from pipeline_core.training import history
from pipeline_htfbr.training import train_surface
from pipeline_htfbr.training.descent import Descent
from plugins.htfbr.fits import assert_same_bits, read_result
from records import read_history

EVERYTHING = {
    "batch_size": 32,
    "clip_norm": 0.5,
    "gradient_weight": 0.1,
    "schedule": {"name": "step", "every": 3, "warmup_epochs": 2},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "train",
    [
        EVERYTHING,
        {"record_every": 1, "schedule": {"name": "plateau", "every": 1}},
    ],
)
def test_four_and_four_epochs_equal_eight(fit, train):
    train_surface(fit(train | {"epochs": 4}, "parts"))
    parts, whole = fit(train, "parts"), fit(train, "whole")
    train_surface(parts)
    train_surface(whole)
    assert_same_bits(parts, whole)


@pytest.mark.slow
def test_a_killed_training_continues_to_the_same_bits(fit, tmp_path):
    killed, whole = fit(EVERYTHING, "killed"), fit(EVERYTHING, "whole")
    words = [tmp_path / "killed", torch.get_num_threads()]
    done = run_on_ranks("plugins.htfbr.killed", words, 1)
    assert (done.returncode, done.stdout) == (1, "")
    assert not killed.model.exists()
    assert [line["epoch"] for line in read_history(killed)] == [2, 4]
    train_surface(killed)
    train_surface(whole)
    assert_same_bits(killed, whole)


def test_lines_beyond_the_saved_state_disappear(fit, monkeypatch):
    run = fit()
    monkeypatch.setattr(history, "append_record", _append_and_stop)
    with pytest.raises(KeyboardInterrupt):
        train_surface(run)
    monkeypatch.undo()
    assert len(read_history(run)) == 1  # its weights were not saved
    train_surface(run)
    assert [line["epoch"] for line in read_history(run)] == [2, 4, 6, 8]


@pytest.mark.slow
def test_lost_outputs_are_written_again_without_training(fit, monkeypatch):
    run = fit()
    train_surface(run)
    weights, records = read_result(run)
    run.model.unlink()
    run.history.unlink()
    monkeypatch.delattr(Descent, "step")
    train_surface(run)
    assert read_result(run)[1] == records
    assert all(torch.equal(tensor, weights[name]) for name, tensor in read_result(run)[0].items())


def _append_and_stop(path, record):
    path.write_text(json.dumps(record) + "\n")
    raise KeyboardInterrupt


@pytest.mark.slow
def test_a_changed_experiment_starts_afresh(fit, caplog):
    train_surface(fit())
    again = fit({"gradient_weight": 0.1})
    with caplog.at_level(logging.WARNING):
        train_surface(again)
    assert "train.gradient_weight" in caplog.text
    fresh = fit({"gradient_weight": 0.1}, "fresh")
    train_surface(fresh)
    assert_same_bits(again, fresh)
