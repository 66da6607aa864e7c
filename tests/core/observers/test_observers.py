"""Observers: what they write, and that they change nothing."""

import io
import logging
import os
import re
import sys
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

import toy_potential as toy
from pipeline_core import hookimpl
from pipeline_core.config.sections import Section, TrainOptions
from pipeline_core.figures.results import read_records
from pipeline_core.observers import activity, progress, records, tensorboard
from pipeline_core.stages import train as train_stage
from pipeline_core.status.pace import Position

RECORD = {
    "epoch": 3,
    "lr": 0.01,
    "train": {"loss": 0.5, "energy": 0.5},
    "val": {"loss": 0.25, "energy": None},
    "mae": {"energy": 0.125, "magmoms": None},
    "samples_per_s": 831.2,
}


POSITION = Position(
    epoch=2,
    epochs=10,
    step=40,
    steps=100,
    elapsed=60.0,
    step_seconds=0.15,
    rest_seconds=3.25,
    samples_per_s=831.2,
    loss=0.5,
    val_loss=0.25,
    updated=0.0,
)


@pytest.fixture
def run(tmp_path):
    return toy.make_run(tmp_path)


def train_observed(run, *observers):
    """Train with these observers registered, as the engine registers its own."""
    manager = run.registry.manager
    for observer in (train_stage, *observers):
        manager.register(observer)
    return run.registry.select_hook("train", "toy")(run=run)


def test_a_record_of_each_stage(run, monkeypatch):
    run.folder.mkdir(parents=True, exist_ok=True)
    path = run.folder / "records.jsonl"
    path.write_text('{"stage": "gra')  # a torn record does not take the next one with it
    summary = train_observed(run, records.RECORDS)
    (record,) = read_records(run.folder)
    assert record["stage"] == "train"
    assert record["summary"] == summary
    assert record["ranks"] == 1
    assert record["seconds"] > 0
    assert record["peak_memory"] > 1e7
    assert record["cores"] >= 1
    assert record["cpu"]
    assert record["gpu"] is None
    run.registry.select_hook("train", "toy")(run=run)
    assert len(read_records(run.folder)) == 2

    class Rank:
        rank, size = 1, 2

    monkeypatch.setattr(records, "find_world", Rank)
    run.registry.select_hook("train", "toy")(run=run)
    assert len(read_records(run.folder)) == 2  # the first rank alone records


def test_a_failed_stage_leaves_no_record(run):
    class Failing:
        @hookimpl(tryfirst=True)
        def train(self):
            raise ValueError("no disk")

    with pytest.raises(ValueError, match="no disk"):
        train_observed(run, records.RECORDS, Failing())
    assert not (run.folder / "records.jsonl").exists()


def test_a_record_for_which_there_is_no_room_ends_no_stage(run, caplog):
    """The oracle of a full disk is the kernel's."""
    path = run.folder / "records.jsonl"
    path.symlink_to("/dev/full")
    with caplog.at_level(logging.WARNING):
        summary = train_observed(run, records.RECORDS)
    assert summary["epochs"] == 3
    assert run.model.exists()
    assert f"{path}: the stage 'train' has succeeded, but its record cannot be" in caplog.text
    assert "(No space left on device)" in caplog.text


def test_results_that_were_copied_by_hard_links_get_no_foreign_record(run):
    records.write_record(run.folder, "graph", 1.0, {})
    path, copy = run.folder / "records.jsonl", run.folder.with_name("copy")
    before = path.read_bytes()
    copy.mkdir()
    os.link(path, copy / "records.jsonl")
    records.write_record(copy, "train", 2.0, {})
    assert path.read_bytes() == before
    assert len((copy / "records.jsonl").read_text().splitlines()) == 2
    assert [p.name for p in copy.iterdir()] == ["records.jsonl"]


def test_notes_that_cannot_be_removed_end_no_stage(run):
    for note in (".train.progress", ".train.failed"):
        (run.folder / note).mkdir(parents=True)
    assert train_observed(run, activity, activity.FAILURES)["epochs"] == 3


def test_lines_for_which_there_is_no_room_end_no_training(run, monkeypatch):
    with Path("/dev/full").open("w", encoding="utf-8", buffering=1) as log:
        monkeypatch.setattr(sys, "stderr", log)
        assert train_observed(run, progress.PROGRESS)["epochs"] == 3
        monkeypatch.undo()
        with pytest.raises(OSError, match="No space left"):
            log.close()  # what was written is still there


def test_one_line_an_epoch_where_there_is_no_terminal(run, capsys):
    train_observed(run, progress.PROGRESS)
    lines = capsys.readouterr().err.splitlines()
    heads = [line[:9] for line in lines if not line.startswith("    ")]
    assert heads == ["epoch 1/3", "epoch 2/3", "epoch 3/3"]
    assert max(map(len, lines)) <= 80


def test_lines_are_no_longer_than_there_is_room():
    parts = progress.list_epoch(RECORD, 10, left=2890.0)
    assert progress.fold(parts, 80) == [
        "epoch  3/10  train 5.00e-01  val 2.50e-01  0:48:10 left  831 samples/s",
        "    energy 125 meV  lr 1.0e-02",
    ]
    for width in (100, 80, 60, 30):
        lines = progress.fold(parts, width)
        assert max(map(len, lines)) <= width
        assert "  ".join(line.strip() for line in lines) == "  ".join(parts)
    assert progress.fold(["epoch 3", "a long word"], 5) == ["epoch 3", "    a long word"]
    lines = progress.fold(progress.list_position(POSITION), 80)
    assert lines == ["epoch  3/10 40%  train 5.00e-01  val 2.50e-01  0:02:20 left  831 samples/s"]


@pytest.mark.parametrize(
    ("record", "sections", "line"),
    [
        (RECORD | {"epoch": 0, "train": None}, {}, "epoch 0/3  val 2.50e-01"),
        (
            {"epoch": 3, "step": "polish", "train": {"loss": 0.5}},
            {},
            "polish 3  train 5.00e-01\n",
        ),
        ({"epoch": 3}, {"train": Section()}, "epoch 3\n"),  # need not count epochs
    ],
    ids=["before the first step", "of a plugin that trains by itself", "of its own section"],
)
def test_other_lines(run, capsys, record, sections, line):
    run = replace(run, sections={**run.sections, **sections})
    progress.PROGRESS.epoch(run=run, record=record)
    assert capsys.readouterr().err.startswith(line)


def test_a_line_within_an_epoch_comes_after_a_long_time(run, capsys):
    now = [0.0]
    lines = progress.ProgressLines(lambda: now[0])
    for now[0] in (30.0, 59.0, 61.0, 100.0, 120.0, 122.0, 130.0):
        lines.progress(run, replace(POSITION, step=int(now[0]) // 2))
    shown = capsys.readouterr().err.splitlines()
    assert [line[:16] for line in shown] == ["epoch  3/10 30% ", "epoch  3/10 61% "]


def test_the_end_of_a_budget_of_time_stands_in_the_line(run, capsys):
    """The clock of this place; 100 s of it are used, 60 s after midnight of 1970 in UTC."""
    lines = progress.ProgressLines()
    position = replace(POSITION, epochs=None, elapsed=100.0, budget=400.0, updated=60.0)
    lines.progress(run, replace(position, step=0))
    unlimited = TrainOptions(minutes=400 / 60)
    lines.epoch(replace(run, sections={"train": unlimited}), {**RECORD, "epoch": 2})
    end = f"{datetime.fromtimestamp(360):%H:%M:%S}"
    assert f"epoch 2  train 5.00e-01  val 2.50e-01  0:05:00 left (until {end})" in (
        capsys.readouterr().err
    )
    assert position.fraction == 0.25


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_a_bar_on_a_terminal(run, monkeypatch, columns):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(columns))
    long = {**RECORD, "mae": dict.fromkeys(("energy", "forces", "stress", "magmoms"), 0.125)}
    lines = progress.ProgressLines()
    lines.epoch(run, long)
    lines.progress(run, POSITION)
    shown = terminal.getvalue()
    assert shown.startswith("\r")
    assert "━" in shown
    assert "epoch 3/3" in shown
    assert "epoch  3/10 40%" in shown
    assert "\n" not in shown
    plain = [re.sub(r"\x1b\[[\d;]*[mK]", "", line) for line in shown.split("\r")[1:]]
    assert len(plain) == 2
    assert all(len(line) < columns for line in plain)


@pytest.mark.parametrize("word", ["true", "yes", "2"])
def test_an_answer_about_tensorboard_that_is_none_is_refused(run, monkeypatch, word):
    monkeypatch.delenv("PIPELINE_TENSORBOARD", raising=False)
    tensorboard.epoch(run, RECORD)
    assert not (run.folder / "tensorboard").exists()
    monkeypatch.setenv("PIPELINE_TENSORBOARD", word)
    with pytest.raises(ValueError, match=rf"PIPELINE_TENSORBOARD: '{word}' is neither 1 nor 0"):
        tensorboard.epoch(run, RECORD)
    monkeypatch.setenv("PIPELINE_TENSORBOARD", "1")
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ValueError, match=r"pip install 'pipeline-core\[tensorboard\]'"):
        tensorboard.epoch(run, RECORD)


def test_tensorboard_gets_all_numbers(run, monkeypatch):
    written = {}

    class Writer:
        def add_scalar(self, name, value, step):
            written[name] = (value, step)

        def flush(self):
            written["flushed"] = True

    monkeypatch.setenv("PIPELINE_TENSORBOARD", "1")
    monkeypatch.setattr(tensorboard, "_open_writer", lambda folder: Writer())
    profile = {"compute": [1.5, 2.0]}
    tensorboard.epoch(run, RECORD | {"step": "polish", "profile": profile})
    assert written.pop("flushed")
    assert written["val/loss"] == (0.25, 3)
    assert written["mae/energy"] == (0.125, 3)
    assert (written["profile/compute/0"], written["profile/compute/1"]) == ((1.5, 3), (2.0, 3))
    assert not {"mae/magmoms", "step"} & set(written)


def test_curves_for_which_there_is_no_room_end_no_training(run, monkeypatch, caplog):
    def fail(folder):
        raise OSError(28, "No space left on device")

    monkeypatch.setenv("PIPELINE_TENSORBOARD", "1")
    monkeypatch.setattr(tensorboard, "_open_writer", fail)
    assert train_observed(run, tensorboard)["epochs"] == 3
    assert f"{run.folder}/tensorboard: the curves of epoch 3 cannot be written" in caplog.text
