"""Where the time of a training goes.

Oracles: clocks that tick by hand, and a model that sleeps for a given time an edge, so that the
shares of the ranks say how long each of them computes and waits at least.
"""

import shutil

import numpy as np
import pytest
import torch

import toy_potential as toy
from pipeline_core.distributed.ranks import Ranks
from pipeline_core.distributed.world import World
from pipeline_core.training import profile
from pipeline_core.training.balance.partitioning import read_shares
from pipeline_core.training.balance.sampler import Sampler
from pipeline_core.training.profile import StepClock
from pipeline_core.training.trainer import train_run
from records import read_history

ALONE = Ranks(World(), torch.device("cpu"))
SECONDS_PER_EDGE = 2e-3
SETTINGS = {
    "train": {"profile": True, "epochs": 2},
    "model": {
        "n_train": 24,
        "n_val": 0,
        "seconds_per_edge": SECONDS_PER_EDGE,
        "cost": "samples",
    },
}


def sleep_times(run, epoch, n_ranks):
    """Seconds that each rank sleeps in each step, (n_steps, n_ranks)."""
    shares = read_shares(run.partition, "train", 24)
    plan = Sampler(costs=shares.costs, batch_size=4, seed=run.seed).plan_epoch(epoch, n_ranks)
    return plan.sum_loads(shares.sizes["edge"]) * SECONDS_PER_EDGE


@pytest.fixture
def ticking(monkeypatch):
    """A clock that shows 0, 1, 3, 6, 10, ...: the n-th phase lasts n seconds."""
    shown = iter(np.cumsum(np.arange(100.0)).tolist())
    monkeypatch.setattr(profile.time, "perf_counter", lambda: next(shown))


def test_phases_by_hand(ticking):
    clock = StepClock(ALONE, runs=True, synchronizes=True)
    clock.start()
    clock.mark("compute")  # 1
    clock.mark("communication")  # 2
    clock.finish_share()  # 3, then idle for 4
    clock.mark("communication")  # 5
    clock.mark("compute")  # 6
    assert clock.share == 3
    assert clock.read().tolist() == [1 + 3 + 6, 2 + 5, 4]
    assert clock.read().tolist() == [0, 0, 0]
    clock.start()  # what came before counts for nothing
    clock.mark("idle")
    assert clock.read().tolist() == [0, 0, 8]
    alone = StepClock(ALONE, runs=True, synchronizes=False)  # ranks that never meet
    alone.start()
    alone.finish_share()
    alone.mark("communication")
    assert alone.read().tolist() == [10, 11, 0]


@pytest.mark.slow
def test_a_training_is_continued_with_a_profile_and_not_changed(tmp_path, monkeypatch, caplog):
    """Without one nothing is measured."""

    def refuse(*_):
        raise AssertionError("a training without a profile")

    plain = toy.make_run(tmp_path / "plain", {"epochs": 2, "checkpoint_steps": 1})
    with monkeypatch.context() as without:
        without.setattr(Ranks, "barrier", refuse)
        without.setattr(StepClock, "_read_clock", refuse)
        train_run(plain)
        train_run(toy.make_run(tmp_path / "profiled", {"epochs": 1}))
    run = toy.train(tmp_path / "profiled", {"epochs": 2, "profile": True})
    assert "afresh" not in caplog.text
    assert ["profile" in record for record in read_history(run)] == [False, True]
    losses = [[record["train"] for record in read_history(one)] for one in (plain, run)]
    assert losses[0] == losses[1]


@pytest.mark.mpi
def test_ranks_wait_for_the_slowest(tmp_path):
    run = toy.make_run(tmp_path, **SETTINGS)
    toy.train_on_ranks(tmp_path, 2, TOY_SLEEP_CLOCK="1")
    for epoch, record in enumerate(read_history(run)):
        seconds = sleep_times(run, epoch, 2)
        waits = (seconds.max(1, keepdims=True) - seconds).sum(0)
        assert record["profile"]["compute"] == pytest.approx(seconds.sum(0))
        assert record["profile"]["idle"] == pytest.approx(waits)
        assert record["profile"]["communication"] == pytest.approx([0, 0], abs=1e-9)


@pytest.mark.mpi
def test_a_profile_survives_an_interruption(tmp_path):
    folder = tmp_path / "two"
    settings = SETTINGS | {"train": {"profile": True, "epochs": 1, "checkpoint_steps": 1}}
    run = toy.make_run(folder, **settings)
    assert toy.start_on_ranks(folder, 2, TOY_FATE="6 dies 1").returncode != 0
    state = torch.load(run.state / "last.pt", weights_only=True)
    assert 1 <= state["progress"]["step"] < 6
    before = state["times"]["phases"][:, 0]
    steps = sleep_times(run, 0, 2)[: state["progress"]["step"]]
    assert (before.numpy() > steps.sum(0)).all()
    shutil.copytree(folder, tmp_path / "one")
    toy.train_on_ranks(folder, 2)
    record = read_history(run)[0]
    assert (np.array(record["profile"]["compute"]) > sleep_times(run, 0, 2).sum(0)).all()
    # No step counts twice: both processes together have not taken less.
    total = np.sum([record["profile"][phase] for phase in profile.PHASES], axis=0)
    assert (total < record["seconds"]).all()
    alone = toy.load_run(tmp_path / "one")
    train_run(alone)  # times of ranks that are no more cannot go on
    left = sleep_times(run, 0, 1)[state["progress"]["step"] :].sum()
    record = read_history(alone)[0]
    assert left < record["profile"]["compute"][0] < record["seconds"] - float(before.max())
