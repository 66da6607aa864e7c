"""Interrupted trainings end like uninterrupted ones, bit for bit."""

import logging
import shutil

import pytest
import torch

import toy_potential as toy
from pipeline_core.training.history import TIMES
from pipeline_core.training.model_file import load_archive, save_archive
from pipeline_core.training.trainer import train_run
from records import assert_same_weights, read_history, read_weights

EVERYTHING = {
    "ema_decay": 0.9,
    "clip_norm": 1.0,
    "schedule": {"name": "step", "every": 2, "warmup_epochs": 1},
    "optimizer": {"name": "adamw", "lr": 1e-2, "weight_decay": 1e-3},
}


def read_result(run):
    lines = read_history(run)
    return read_weights(run), [
        {key: value for key, value in line.items() if key not in TIMES} for line in lines
    ]


def assert_same_bits(a, b):
    (weights_a, history_a), (weights_b, history_b) = read_result(a), read_result(b)
    assert history_a == history_b
    assert_same_weights(weights_a, weights_b)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a training that has ended."""
    folder = tmp_path_factory.mktemp("finished")
    train_run(toy.make_run(folder))
    return folder


@pytest.fixture
def trained(finished, tmp_path):
    """A copy of it that may be changed."""
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    return toy.load_run_on_cpu(tmp_path)


def assert_starts_afresh(run, caplog, *reasons):
    train_run(run)
    assert [reason for reason in reasons if reason not in caplog.text] == []
    assert "training starts afresh" in caplog.text
    assert len(read_history(run)) == 3


def train_in_parts(folder, train, **sections):
    """Return a training of two and two epochs, and one of four."""
    train_run(toy.make_run(folder / "parts", train | {"epochs": 2}, **sections))
    parts = toy.make_run(folder / "parts", train | {"epochs": 4}, **sections)
    whole = toy.make_run(folder / "whole", train | {"epochs": 4}, **sections)
    for run in (parts, whole):
        train_run(run)
    return parts, whole


@pytest.mark.slow
@pytest.mark.parametrize(
    ("train", "model"),
    [
        (EVERYTHING, {}),
        ({"schedule": {"name": "plateau", "every": 1}}, {}),
        ({"freeze": ["net.0"], "ema_decay": 0.9}, {}),
        ({}, {"drawn": True}),
    ],
    ids=["everything", "plateau", "frozen", "drawn"],
)
def test_two_and_two_epochs_equal_four(tmp_path, train, model):
    assert_same_bits(*train_in_parts(tmp_path, train, model=model))


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
    toy.train_and_kill(tmp_path / "killed", at_batch)
    assert not run.model.exists()
    saved = torch.load(run.state / "last.pt", weights_only=True)["progress"]
    assert saved["epoch"] == epoch
    assert saved["step"] in steps
    train_run(run)
    whole = toy.train(tmp_path / "whole", train)
    assert_same_bits(run, whole)


@pytest.mark.slow
def test_lost_outputs_are_written_again_without_training(trained, caplog):
    before = read_result(trained)
    with trained.history.open("a") as file:
        file.write('{"epoch": 4}\n{"epo')  # beyond the saved state
    train_run(trained)
    assert read_result(trained)[1] == before[1]
    trained.model.unlink()
    trained.history.unlink()
    toy.EPOCHS_HEARD.clear()
    train_run(trained)
    after = read_result(trained)
    assert not toy.EPOCHS_HEARD
    assert before[1] == after[1]
    assert_same_weights(after[0], before[0])
    assert not caplog.records


COSINE = {"schedule": {"name": "cosine"}}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "changed", "reason"),
    [
        ({}, {"train": {"batch_size": 5}}, "train.batch_size"),
        ({}, {"train": {"loss": {"energy": {"weight": 2.0}}}}, "train.loss"),
        ({}, {"model": {"width": 4}}, "model.width"),
        ({}, {"seed": 8}, "seed"),
        ({}, {"train": {"epochs": 2}}, "3 epochs, more than the 2 requested"),
        ({"train": COSINE | {"epochs": 2}}, {"train": COSINE}, "train.epochs"),
    ],
)
def test_a_changed_experiment_starts_afresh(tmp_path, caplog, before, changed, reason):
    train_run(toy.make_run(tmp_path / "a", **before))
    again = toy.make_run(tmp_path / "a", **changed)
    with caplog.at_level(logging.WARNING):
        train_run(again)
    assert reason in caplog.text
    assert "starts afresh" in caplog.text
    fresh = toy.train(tmp_path / "b", **changed)
    assert_same_bits(again, fresh)


def test_an_edited_plugin_starts_afresh(trained, caplog, monkeypatch):
    monkeypatch.setattr(type(trained.registry), "compute_fingerprint", lambda *_: "edited")
    assert_starts_afresh(trained, caplog, "plugin source")


def test_a_damaged_state_is_noticed(trained, caplog):
    path = trained.state / "last.pt"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert_starts_afresh(trained, caplog, "last.pt: its contents are damaged")


def test_a_state_that_predicts_something_else_is_noticed(trained, caplog):
    """Its checksum is right: the module is built otherwise, or its weights are not its own."""
    path = trained.state / "last.pt"
    saved = load_archive(path, "")
    weights = saved["learner"]["module"]
    saved["learner"]["module"] = {name: 1.01 * tensor for name, tensor in weights.items()}
    save_archive(path, saved, {})
    assert_starts_afresh(trained, caplog, "does not reproduce the predictions stored beside them")


@pytest.mark.slow
@pytest.mark.parametrize(("width", "resumes"), [(8, True), (4, False)])
def test_an_option_that_came_later_had_its_default_before(tmp_path, caplog, width, resumes):
    run = toy.train(tmp_path, model={"width": width})
    saved = load_archive(run.state / "last.pt", "")
    del saved["facts"]["model.width"]
    save_archive(run.state / "last.pt", saved, {})
    train_run(run)
    assert ("another model.width" in caplog.text) != resumes
