"""Shares by the time that samples turn out to take.

Oracles: times made from coefficients; a model that sleeps for a given time an edge; and for the
result of a training the same one with given costs, as a step has the same samples.
"""

import numpy as np
import pytest
import torch

import toy_potential as toy
from pipeline_core.training.balance.cost_model import CostModel
from pipeline_core.training.balance.partitioning import read_shares
from pipeline_core.training.balance.sampler import Sampler
from pipeline_core.training.learner import Learner
from pipeline_core.training.profile import EpochTimes
from pipeline_core.training.trainer import train_run
from records import read_history

FITTED = {"partition": {"cost": "fitted"}}
SLEEPY = {"model": {"seconds_per_edge": 5e-4}}
"""So that times depend on sizes even where other work disturbs them."""


def predict(model, plan, sizes):
    return model.predict({kind: plan.sum_loads(n) for kind, n in sizes.items()})


@pytest.fixture
def measured():
    """Sizes, a plan, and the times of its shares by known coefficients."""
    draw = np.random.default_rng(2)
    sizes = {"atom": draw.integers(5, 50, 40), "edge": draw.integers(100, 900, 40)}
    plan = Sampler(costs=sizes["atom"] * 1.0, batch_size=5).plan_epoch(0, 3)
    true = CostModel(2e-3, {"atom": 1e-4, "edge": 3e-6})
    times = EpochTimes.zero(len(plan), 3)
    times.shares += torch.from_numpy(predict(true, plan, sizes))
    return sizes, plan, times, true


def test_known_coefficients_come_back(measured):
    """A step was not measured, a share disturbed; a rank that has nothing to do does it fast."""
    sizes, plan, times, true = measured
    times.shares[0], times.shares[3, 1] = 0, 5
    idle = Sampler(costs=np.ones(40), batch_size=2).plan_epoch(0, 3)
    fast = EpochTimes.zero(len(idle), 3)
    fast.shares += torch.from_numpy(predict(true, idle, sizes))
    fast.shares[:, 2] = 1e-6
    for found in (times.fit_cost_model(plan, sizes), fast.fit_cost_model(idle, sizes)):
        assert found.coefficients == pytest.approx(true.coefficients, rel=1e-9)


def test_times_that_tell_nothing(measured):
    sizes, plan, times, _ = measured
    atoms = torch.from_numpy(plan.sum_loads(sizes["atom"]))
    times.shares[:] = 1e-3 + 1 / atoms  # the more atoms the faster
    assert times.fit_cost_model(plan, {"atom": sizes["atom"]}) is None
    times.shares[:, 1:] = 0
    times.shares[2:] = 0
    assert times.fit_cost_model(plan, sizes) is None
    assert EpochTimes.zero(len(plan), 3).fit_cost_model(plan, sizes) is None


@pytest.mark.slow
def test_the_first_epoch_has_given_costs_and_each_record_the_next_ones(tmp_path, monkeypatch):
    """Also where a training is continued."""
    trains = [{"epochs": epochs, "batch_size": 2} for epochs in (2, 3)]
    runs = [toy.make_run(tmp_path, train, **FITTED, **SLEEPY) for train in trains]
    used, run = record_plans(monkeypatch), runs[-1]
    for part in runs:
        train_run(part)
    sizes = read_shares(run.partition, "train", 13).sizes
    models = [record["cost_model"] for record in read_history(run)]
    assert all(model.keys() == {"constant", "atom", "edge"} for model in models)
    assert all(min(model.values()) >= 0 < sum(model.values()) for model in models)
    assert used[0] is None
    for times, model in zip(used[1:], models[:-1], strict=True):
        assert times.tolist() == CostModel.of(model).predict_seconds(sizes).tolist()


def record_plans(monkeypatch):
    """Return a list to which each plan of a training adds the times that it is made by."""
    used, plan = [], Sampler.plan_epoch

    def recording(sampler, epoch, n_ranks):
        used.append(sampler.times)
        return plan(sampler, epoch, n_ranks)

    monkeypatch.setattr(Sampler, "plan_epoch", recording)
    return used


@pytest.mark.slow
@pytest.mark.parametrize("cost", ["fitted", "given"])
def test_an_interrupted_epoch_keeps_its_shares(tmp_path, monkeypatch, cost):
    train = {"epochs": 3, "batch_size": 2, "checkpoint_steps": 1}
    run = toy.make_run(tmp_path, train, **FITTED, **SLEEPY)
    with monkeypatch.context() as within:
        interrupt(within, at_step=10)  # the third of the second epoch
        with pytest.raises(KeyboardInterrupt):
            train_run(run)
    run = toy.make_run(tmp_path, train, partition={"cost": cost}, **SLEEPY)
    used = record_plans(monkeypatch)
    train_run(run)
    sizes = read_shares(run.partition, "train", 13).sizes
    first = CostModel.of(read_history(run)[0]["cost_model"]).predict_seconds(sizes)
    assert used[0].tolist() == first.tolist()
    assert (used[1] is None) == (cost == "given")
    assert len(read_history(run)) == 3


def interrupt(monkeypatch, at_step):
    done, step = [], Learner.step

    def interrupted(learner, *arguments):
        done.append(1)
        if len(done) == at_step:
            raise KeyboardInterrupt
        return step(learner, *arguments)

    monkeypatch.setattr(Learner, "step", interrupted)


@pytest.mark.mpi
def test_the_training_is_the_same(tmp_path):
    partition = {"capacity": 30.0}
    alone = toy.train(tmp_path / "given", partition=partition, **SLEEPY)
    partition |= {"cost": "fitted"}
    run = toy.make_run(tmp_path / "fitted", partition=partition, **SLEEPY)
    toy.train_on_ranks(tmp_path / "fitted", 2)
    for given, fitted in zip(read_history(alone), read_history(run), strict=True):
        for split in ("train", "val"):
            assert fitted[split] == pytest.approx(given[split], rel=1e-6)
        assert "cost_model" in fitted


@pytest.mark.mpi
def test_ranks_wait_less_for_each_other(tmp_path):
    """Given costs take all samples for equal; the time of a step lies in its edges."""
    model = {"n_train": 80, "n_val": 0, "seconds_per_edge": 3e-3, "cost": "samples"}
    train = {"epochs": 3, "batch_size": 8, "profile": True}
    run = toy.make_run(tmp_path, train, model=model, **FITTED)
    toy.train_on_ranks(tmp_path, 2)
    shares = read_shares(run.partition, "train", 80)
    for epoch, record in enumerate(read_history(run)):
        plan = Sampler(costs=shares.costs, batch_size=8, seed=run.seed).plan_epoch(epoch, 2)
        seconds = plan.sum_loads(shares.sizes["edge"]) * 3e-3
        with_given_costs = (seconds.max(1, keepdims=True) - seconds).sum()
        idle = sum(record["profile"]["idle"])
        if epoch == 0:
            assert record["balance"] == 1  # by costs that know no better
            assert idle > 0.8 * with_given_costs
        else:
            assert idle < 0.6 * with_given_costs
