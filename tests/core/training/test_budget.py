"""Trainings in a budget of time, by a clock that goes on by 10 s a step: 40 s an epoch.

Oracles: trainings by a number of epochs, bit for bit, and the formula of the cosine.
"""

import math

import pytest

import toy_potential as toy
from core.training.test_resume import assert_same_bits
from pipeline_core.artifacts.store import read_provenance
from pipeline_core.config.sections import UNLIMITED, TrainOptions
from pipeline_core.status.pace import Pace
from pipeline_core.training import session
from pipeline_core.training.learner import Learner
from pipeline_core.training.trainer import train_run
from records import read_history
from tiers import run_first

STEP = 10.0
EPOCH = 4 * STEP
THREE = 2.1
"""Minutes in which three epochs fit, and no fourth."""
COSINE = {"schedule": {"name": "cosine", "final_fraction": 0.1}}


class Clock:
    """Goes on by steps alone; ends the process at one of them, as a kill does, if told to."""

    def __init__(self):
        self.now, self.steps, self.dies_at = 0.0, 0, None

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock, step = Clock(), Learner.step

    def count(learner, *arguments):
        clock.now, clock.steps = clock.now + STEP, clock.steps + 1
        if clock.steps == clock.dies_at:
            raise KeyboardInterrupt
        return step(learner, *arguments)

    monkeypatch.setattr(Learner, "step", count)
    monkeypatch.setattr(session, "Pace", lambda *times: Pace(*times, clock=clock))
    return clock


def make_run(folder, minutes=None, epochs=None, **train):
    """Write an experiment that says how long it trains in one way, or in both."""
    given = {"minutes": minutes, "epochs": epochs} | train
    run = toy.make_run(folder, {key: value for key, value in given.items() if value is not None})
    if epochs is None:  # the toy's own default is a number of epochs
        path = folder / "workflows/experiments/pairs.yaml"
        path.write_text(path.read_text().replace("  epochs: 3\n", ""))
        run = toy.load_run(folder)
    return run


def list_epochs(run):
    return [record["epoch"] for record in read_history(run)]


@pytest.mark.slow
def test_an_epoch_that_would_end_too_late_is_not_begun(tmp_path, clock):
    run = make_run(tmp_path, THREE)
    assert run.planned_epochs is None
    train_run(run)
    assert list_epochs(run) == [1, 2, 3]
    assert [record["elapsed"] for record in read_history(run)] == [EPOCH, 2 * EPOCH, 3 * EPOCH]
    assert "unfinished" not in read_provenance(run.model)
    by_epochs = make_run(tmp_path / "epochs", epochs=3)
    train_run(by_epochs)
    assert_same_bits(run, by_epochs)
    run.model.unlink()
    clock.steps = 0
    train_run(run)  # which is over and takes no step
    assert clock.steps == 0
    assert run.model.is_file()


@pytest.mark.parametrize(
    ("minutes", "epochs", "trained"),
    [(THREE, 2, 2), (THREE, 10, 3), (0.01, None, 1)],  # the first epoch is trained in any case
)
def test_what_comes_first_ends_the_training(tmp_path, clock, minutes, epochs, trained):
    run = make_run(tmp_path, minutes, epochs)
    assert run.planned_epochs == epochs
    assert train_run(run)["epochs"] == trained


@pytest.mark.slow
def test_more_time_prolongs_it(tmp_path, clock, caplog):
    train_run(make_run(tmp_path / "parts", THREE))
    parts = make_run(tmp_path / "parts", 4.1)
    train_run(parts)
    assert list_epochs(parts) == [1, 2, 3, 4, 5, 6]
    assert "afresh" not in caplog.text
    whole = make_run(tmp_path / "whole", epochs=6)
    train_run(whole)
    assert_same_bits(parts, whole)


def compute_rates(shares):
    return [0.01 * (0.1 + 0.9 * (1 + math.cos(math.pi * x)) / 2) for x in shares]


@pytest.mark.slow
def test_a_cosine_follows_the_time(tmp_path, clock, caplog):
    """The last epoch begins 86 s after the first at the latest."""
    run = make_run(tmp_path, THREE, **COSINE)
    train_run(run)
    rates = [record["lr"] for record in read_history(run)]
    latest = 60 * THREE - EPOCH
    assert rates == pytest.approx(compute_rates([0.0, EPOCH / latest, 2 * EPOCH / latest]))
    longer = make_run(tmp_path, 4.1, **COSINE)
    train_run(longer)
    assert "saved with another train.minutes; training starts afresh" in caplog.text


@pytest.mark.slow
def test_a_cosine_follows_epochs_where_they_come_first(tmp_path, clock):
    both, alone = (
        make_run(tmp_path / "both", 60, 4, **COSINE),
        make_run(tmp_path / "alone", epochs=4, **COSINE),
    )
    for run in (both, alone):
        train_run(run)
    assert_same_bits(both, alone)


@pytest.mark.slow
@pytest.mark.parametrize("schedule", [{}, COSINE])
@pytest.mark.parametrize("dies_at", [6, 9])
def test_time_before_a_kill_counts(tmp_path, clock, schedule, dies_at):
    """But for that of steps after the last saved state, which are taken again."""
    run = make_run(tmp_path / "killed", THREE, **schedule)
    clock.dies_at = dies_at
    with pytest.raises(KeyboardInterrupt):
        train_run(run)
    assert not run.model.exists()
    train_run(run)
    assert list_epochs(run) == [1, 2, 3]
    assert read_history(run)[-1]["elapsed"] == 3 * EPOCH
    whole = make_run(tmp_path / "whole", THREE, **schedule)
    train_run(whole)
    assert_same_bits(run, whole)


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("schedule", run_first([COSINE, {}]))
def test_two_ranks_end_together(tmp_path, schedule):
    """By the clock of the first, however fast they are."""
    run = make_run(tmp_path, 0.02, **schedule)
    toy.train_on_ranks(tmp_path, 2)
    epochs = list_epochs(run)
    assert epochs == list(range(1, len(epochs) + 1))
    assert epochs
    facts = read_provenance(run.model)
    assert facts["epochs"] == epochs[-1]
    assert "unfinished" not in facts


def test_options():
    assert TrainOptions().epochs == 100
    assert TrainOptions(minutes=5).epochs == UNLIMITED
    assert TrainOptions(minutes=5, epochs=7).planned_epochs == 7
    assert TrainOptions(minutes=5).model_copy(update={"start_from": "x.pt"}).planned_epochs is None
    assert TrainOptions(minutes=5, epochs=7).limit_seconds(10) == 70
    assert TrainOptions(minutes=5).limit_seconds(10) == 300
    with pytest.raises(ValueError, match="minutes: epochs: 0 trains nothing"):
        TrainOptions(minutes=5, epochs=0, start_from="x.pt")
