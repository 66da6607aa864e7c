"""What a training tells of itself while it lasts."""

import pytest

import toy_potential as toy
from pipeline_core import hookimpl
from pipeline_core.observers import activity
from pipeline_core.status.files import read_position
from pipeline_core.training import session
from pipeline_core.training.trainer import train_run
from records import read_history


class Listener:
    """Keeps what it hears."""

    def __init__(self, run):
        self.heard = []
        run.registry.manager.register(self)

    @hookimpl
    def progress(self, position):
        self.heard.append(position)


def test_each_step_of_each_epoch(tmp_path, monkeypatch):
    """13 samples in steps of 4 are 4 steps an epoch."""
    monkeypatch.setattr(session, "_NOTIFY_EVERY", 0.0)
    run = toy.make_run(tmp_path, {"epochs": 2})
    listener = Listener(run)
    train_run(run)
    places = [(p.epoch, p.step) for p in listener.heard]
    one = [(0, 1), (0, 2), (0, 3), (0, 4), (1, 0)]
    assert places == [(0, 0), *one, *((epoch + 1, step) for epoch, step in one)]
    assert {p.epochs for p in listener.heard} == {2}
    assert {p.steps for p in listener.heard[1:]} == {4}
    lines = read_history(run)
    last = listener.heard[-1]
    assert (last.loss, last.val_loss) == (lines[1]["train"]["loss"], lines[1]["val"]["loss"])
    assert listener.heard[6].val_loss == lines[0]["val"]["loss"]
    assert last.estimate_left() == 0.0
    times = [p.elapsed for p in listener.heard]
    assert times == sorted(times)
    assert times[5] >= lines[0]["elapsed"] > lines[0]["seconds"]


@pytest.mark.slow
def test_the_time_of_earlier_starts_counts(tmp_path, monkeypatch):
    """Within an epoch positions are told now and then, here never."""
    monkeypatch.setattr(session, "_NOTIFY_EVERY", 1e9)
    train_run(toy.make_run(tmp_path, {"epochs": 2}))
    run = toy.make_run(tmp_path, {"epochs": 4})
    listener = Listener(run)
    before = read_history(run)[-1]["elapsed"]
    train_run(run)
    assert [(p.epoch, p.step) for p in listener.heard] == [(2, 0), (3, 0), (4, 0)]
    times = [line["elapsed"] for line in read_history(run)]
    assert times == sorted(times)
    assert times[1] == before
    assert listener.heard[0].elapsed > before - 1e-3  # the history is rounded to milliseconds


def test_validation_is_assumed_to_take_a_third_of_training_a_sample(tmp_path, monkeypatch):
    monkeypatch.setattr(session, "_NOTIFY_EVERY", 0.0)
    model = {"n_train": 12, "n_val": 6, "cost": "samples"}
    run = toy.make_run(tmp_path, {"epochs": 1}, model=model)
    listener = Listener(run)
    train_run(run)
    third = listener.heard[3]
    assert third.rest_seconds == pytest.approx(third.step_seconds * 3 * (6 / 12) / 3)


@pytest.mark.slow
def test_the_file_is_there_while_the_training_lasts(tmp_path):
    run = toy.make_run(tmp_path)
    found = []

    class Reader:
        @hookimpl
        def epoch(self, run):
            found.append(read_position(run).epoch)

    class Stage:
        @hookimpl
        def train(self, run):
            return train_run(run)

    for plugin in (activity, Reader(), Stage()):
        run.registry.manager.register(plugin)
    run.registry.select_hook("train", "toy")(run=run)
    assert found == [1, 2, 3]
    assert read_position(run) is None
    assert not list(run.folder.glob(".train*"))
    hindered = toy.make_run(tmp_path / "hindered")
    (hindered.folder / ".train.progress").mkdir(parents=True)  # it cannot be written
    hindered.registry.manager.register(activity)
    assert train_run(hindered)["epochs"] == 3
