"""Interrupted trainings end like uninterrupted ones, bit for bit."""

import logging
import os
import re
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

import toy_potential as toy
from pipeline_core.training.checkpoint import load_archive, load_model, save_archive
from pipeline_core.training.history import TIMES
from pipeline_core.training.trainer import train_run
from records import read_history

TESTS = Path(__file__).parents[2]
EVERYTHING = {
    "ema_decay": 0.9,
    "clip_norm": 1.0,
    "schedule": {"name": "step", "every": 2, "warmup_epochs": 1},
    "optimizer": {"name": "adamw", "lr": 1e-2, "weight_decay": 1e-3},
}


def read_result(run):
    lines = read_history(run)
    return load_model(run.model)["weights"], [
        {key: value for key, value in line.items() if key not in TIMES} for line in lines
    ]


def assert_same_bits(a, b):
    (weights_a, history_a), (weights_b, history_b) = read_result(a), read_result(b)
    assert history_a == history_b
    assert weights_a.keys() == weights_b.keys()
    assert all(torch.equal(tensor, weights_b[name]) for name, tensor in weights_a.items())


@pytest.mark.slow
@pytest.mark.parametrize("train", [EVERYTHING, {"schedule": {"name": "plateau", "every": 1}}])
def test_two_and_two_epochs_equal_four(tmp_path, train):
    train_run(toy.make_run(tmp_path / "parts", train | {"epochs": 2}))
    parts = toy.make_run(tmp_path / "parts", train | {"epochs": 4})
    train_run(parts)
    whole = toy.make_run(tmp_path / "whole", train | {"epochs": 4})
    train_run(whole)
    assert_same_bits(parts, whole)


def test_drawn_samples_go_on_with_the_epoch(tmp_path):
    drawn = {"model": {"drawn": True}}
    train_run(toy.make_run(tmp_path / "parts", {"epochs": 2}, **drawn))
    parts = toy.make_run(tmp_path / "parts", {"epochs": 4}, **drawn)
    train_run(parts)
    whole = toy.make_run(tmp_path / "whole", {"epochs": 4}, **drawn)
    train_run(whole)
    assert_same_bits(parts, whole)


def train_and_kill(folder, at_batch):
    """Train in a process that is killed while it makes a batch; the first one is the probe."""
    environment = os.environ | {"PYTHONPATH": str(TESTS), "TOY_FATE": f"{at_batch} dies 0"}
    process = subprocess.run(
        [sys.executable, "-m", "toy_potential", str(folder), "cpu"],
        env=environment,
        check=False,
    )
    assert process.returncode == -signal.SIGKILL


@pytest.mark.slow
@pytest.mark.parametrize(
    ("at_batch", "epoch", "steps"),
    [
        (10, 1, {1, 2}),  # the last training batch of the second epoch, made ahead of its step
        (18, 3, {0}),  # the second training batch of the fourth, made before the first step
    ],
)
def test_a_killed_training_continues_within_its_epoch(tmp_path, at_batch, epoch, steps):
    train = EVERYTHING | {"epochs": 4, "checkpoint_steps": 1}
    run = toy.make_run(tmp_path / "killed", train)
    train_and_kill(tmp_path / "killed", at_batch)
    assert not run.model.exists()
    saved = torch.load(run.state / "last.pt", weights_only=True)["progress"]
    assert saved["epoch"] == epoch
    assert saved["step"] in steps
    train_run(run)
    whole = toy.make_run(tmp_path / "whole", train)
    train_run(whole)
    assert_same_bits(run, whole)


def test_lost_outputs_are_written_again_without_training(tmp_path, caplog):
    run = toy.make_run(tmp_path)
    train_run(run)
    before = read_result(run)
    run.model.unlink()
    run.history.unlink()
    toy.EPOCHS_HEARD.clear()
    train_run(run)
    after = read_result(run)
    assert not toy.EPOCHS_HEARD
    assert before[1] == after[1]
    assert all(torch.equal(before[0][name], after[0][name]) for name in before[0])
    assert not caplog.records


def test_lines_beyond_the_saved_state_disappear(tmp_path):
    run = toy.make_run(tmp_path)
    train_run(run)
    with run.history.open("a") as file:
        file.write('{"epoch": 4}\n{"epo')
    train_run(run)
    assert len(read_result(run)[1]) == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"train": {"batch_size": 5}}, "train.batch_size"),
        ({"train": {"loss": {"energy": {"weight": 2.0}}}}, "train.loss"),
        ({"model": {"width": 4}}, "model.width"),
        ({"seed": 8}, "seed"),
        ({"train": {"epochs": 2}}, "3 epochs, more than the 2 asked for"),
    ],
)
def test_a_changed_experiment_starts_afresh(tmp_path, caplog, changed, reason):
    train_run(toy.make_run(tmp_path / "a"))
    again = toy.make_run(tmp_path / "a", **changed)
    with caplog.at_level(logging.WARNING):
        train_run(again)
    assert reason in caplog.text
    assert "starts afresh" in caplog.text
    fresh = toy.make_run(tmp_path / "b", **changed)
    train_run(fresh)
    assert_same_bits(again, fresh)


def test_a_schedule_that_depends_on_the_length_starts_afresh(tmp_path, caplog):
    cosine = {"schedule": {"name": "cosine"}}
    train_run(toy.make_run(tmp_path / "a", cosine | {"epochs": 2}))
    longer = toy.make_run(tmp_path / "a", cosine | {"epochs": 3})
    train_run(longer)
    assert "train.epochs" in caplog.text
    fresh = toy.make_run(tmp_path / "b", cosine | {"epochs": 3})
    train_run(fresh)
    assert_same_bits(longer, fresh)


def test_an_edited_plugin_starts_afresh(tmp_path, caplog, monkeypatch):
    run = toy.make_run(tmp_path)
    train_run(run)
    monkeypatch.setattr(type(run.registry), "compute_fingerprint", lambda *_: "edited")
    train_run(run)
    assert "plugin source" in caplog.text


def test_a_damaged_state_is_noticed(tmp_path, caplog):
    run = toy.make_run(tmp_path)
    train_run(run)
    path = run.state / "last.pt"
    content = bytearray(path.read_bytes())
    content[2000:2200] = bytes(200)
    path.write_bytes(content)
    train_run(run)
    assert "damaged" in caplog.text
    assert len(read_result(run)[1]) == 3


def test_bits_of_a_state_that_no_archiver_looks_at_are_noticed(tmp_path, caplog):
    """The external attributes of records, in the directory of the archive, have no checksum."""
    run = toy.make_run(tmp_path)
    train_run(run)
    path = run.state / "last.pt"
    whole = path.read_bytes()
    records = [match.start() for match in re.finditer(b"PK\x01\x02", whole)]
    assert len(records) > 10
    for record in records:
        for bit in range(32):
            damaged = bytearray(whole)
            damaged[record + 38 + bit // 8] ^= 1 << bit % 8
            path.write_bytes(damaged)
            if record == records[0]:  # oracle: what checks all that archives have checksums of
                with zipfile.ZipFile(path) as archive:
                    assert archive.testzip() is None
            with pytest.raises(ValueError, match=r"last\.pt: its contents are damaged"):
                load_archive(path, "")
    train_run(run)
    assert "last.pt: its contents are damaged" in caplog.text
    assert "training starts afresh" in caplog.text
    assert len(read_result(run)[1]) == 3


def test_a_state_that_predicts_something_else_is_noticed(tmp_path, caplog):
    """Its checksum is right: the module is built otherwise, or its weights are not its own."""
    run = toy.make_run(tmp_path)
    train_run(run)
    path = run.state / "last.pt"
    saved = load_archive(path, "")
    weights = saved["learner"]["module"]
    saved["learner"]["module"] = {name: 1.01 * tensor for name, tensor in weights.items()}
    save_archive(path, saved, {})
    train_run(run)
    assert "does not reproduce the predictions stored beside them" in caplog.text
    assert "training starts afresh" in caplog.text
    assert len(read_result(run)[1]) == 3


@pytest.mark.parametrize(("width", "resumes"), [(8, True), (4, False)])
def test_an_option_that_came_later_had_its_default_before(tmp_path, caplog, width, resumes):
    run = toy.make_run(tmp_path, model={"width": width})
    train_run(run)
    saved = load_archive(run.state / "last.pt", "")
    del saved["facts"]["model.width"]
    torch.save(saved, run.state / "last.pt")
    train_run(run)
    assert ("another model.width" in caplog.text) != resumes
