"""Observers: what they write, and that they change nothing."""

import io
import json
import sys
from dataclasses import replace

import pytest

import toy_potential as toy
from pipeline_core import hookimpl
from pipeline_core.config.sections import Section
from pipeline_core.observers import progress, records, tensorboard
from pipeline_core.stages import train as train_stage

RECORD = {
    "epoch": 3,
    "lr": 0.01,
    "train": {"loss": 0.5, "energy": 0.5},
    "val": {"loss": 0.25, "energy": None},
    "mae": {"energy": 0.125, "magmoms": None},
    "samples_per_s": 831.2,
}


@pytest.fixture
def run(tmp_path):
    return toy.make_run(tmp_path)


def train_observed(run, *observers):
    """Train with these observers registered, as the engine registers its own."""
    manager = run.registry.manager
    for observer in (train_stage, *observers):
        manager.register(observer)
    return run.registry.select_hook("train", "toy")(run=run)


def test_a_record_of_each_stage(run):
    summary = train_observed(run, records.RECORDS)
    (line,) = (run.folder / "records.jsonl").read_text().splitlines()
    record = json.loads(line)
    assert record["stage"] == "train"
    assert record["summary"] == summary
    assert record["ranks"] == 1
    assert record["seconds"] > 0
    assert record["peak_memory"] > 1e7
    assert record["cores"] >= 1
    assert record["cpu"]
    assert record["gpu"] is None


def test_records_are_added(run):
    train_observed(run, records.RECORDS)
    run.registry.select_hook("train", "toy")(run=run)
    assert len((run.folder / "records.jsonl").read_text().splitlines()) == 2


def test_only_the_first_rank_records(run, monkeypatch):
    class Rank:
        rank, size = 1, 2

    monkeypatch.setattr(records, "find_world", Rank)
    train_observed(run, records.RECORDS)
    assert not (run.folder / "records.jsonl").exists()


def test_a_failed_stage_leaves_no_record(run):
    class Failing:
        @hookimpl(tryfirst=True)
        def train(self):
            raise ValueError("no disk")

    with pytest.raises(ValueError, match="no disk"):
        train_observed(run, records.RECORDS, Failing())
    assert not (run.folder / "records.jsonl").exists()


def test_all_stages_are_recorded():
    stages = {"data", "graph", "partition", "train", "evaluate", "infer", "draw"}
    assert all(getattr(records.RECORDS, stage).pipeline_core_impl["wrapper"] for stage in stages)


def test_one_line_an_epoch_where_there_is_no_terminal(run, capsys):
    train_observed(run, progress)
    lines = capsys.readouterr().err.splitlines()
    assert [line[:9] for line in lines] == ["epoch 1/3", "epoch 2/3", "epoch 3/3"]


def test_line():
    assert progress.format_epoch(RECORD, 10) == (
        "epoch  3/10  train 5.000e-01  val 2.500e-01  energy 1.250e-01  lr 1.0e-02  831 samples/s"
    )


def test_line_of_a_plugin_that_trains_by_itself():
    assert (
        progress.format_epoch({"epoch": 3, "train": {"loss": 0.5}}, None)
        == "epoch 3  train 5.000e-01"
    )


def test_a_plugin_s_own_section_need_not_count_epochs(run, capsys):
    progress.epoch(replace(run, sections={"train": Section()}), {"epoch": 3})
    assert capsys.readouterr().err == "epoch 3\n"


def test_a_bar_on_a_terminal(run, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    progress.epoch(run, RECORD)
    shown = terminal.getvalue()
    assert shown.startswith("\r")
    assert "━" in shown
    assert "epoch 3/3" in shown
    assert "\n" not in shown


def test_tensorboard_only_where_asked_for(run, monkeypatch):
    monkeypatch.delenv("PIPELINE_TENSORBOARD", raising=False)
    tensorboard.epoch(run, RECORD)
    assert not (run.folder / "tensorboard").exists()


def test_tensorboard_that_is_not_installed(run, monkeypatch):
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
    tensorboard.epoch(run, RECORD)
    assert written.pop("flushed")
    assert written["val/loss"] == (0.25, 3)
    assert written["mae/energy"] == (0.125, 3)
    assert "mae/magmoms" not in written


def test_tensorboard_gets_a_number_a_rank_and_no_words():
    profile = {"compute": [1.5, 2.0], "idle": [0.5, 0.0]}
    assert dict(tensorboard._list_scalars({"epoch": 2, "step": "polish", "profile": profile})) == {
        "epoch": 2,
        "profile/compute/0": 1.5,
        "profile/compute/1": 2.0,
        "profile/idle/0": 0.5,
        "profile/idle/1": 0.0,
    }
