"""Steps, shares and micro-batches: every sample once, steps alike for any number of ranks.

Oracles: `assign_by_lpt` for the default, the shuffled order of the epoch, and for a training on two
ranks the same training on one.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import toy_potential as toy
from pipeline_core.system.seeds import draw_order
from pipeline_core.training.balance.sampler import Sampler
from pipeline_kernels.packing import assign_by_lpt, pack_mace_bins
from records import assert_same_weights, read_history, read_weights

STRATEGIES = ("balanced", "capped", "random", "pairing", "next_fit", "mace_bins")
SAME_FOR_ALL_RANKS = ("balanced", "random", "pairing")

sizes = st.one_of(st.integers(1, 30), st.just("all"))


@pytest.mark.slow
@settings(deadline=None, max_examples=150)
@given(
    n=st.integers(1, 60),
    batch_size=sizes,
    batch_by=st.sampled_from(["count", "cost"]),
    n_ranks=st.integers(1, 5),
    capacity=st.sampled_from([2.0, 8.0, np.inf]),
    epoch=st.integers(0, 3),
    strategy=st.sampled_from(STRATEGIES),
)
def test_each_sample_once(n, batch_size, batch_by, n_ranks, capacity, epoch, strategy):
    if strategy in ("next_fit", "mace_bins") and batch_size == "all":
        batch_size = n
    costs = np.random.default_rng(n).lognormal(size=n)
    sampler = Sampler(
        costs=costs,
        batch_size=batch_size,
        batch_by=batch_by,
        capacity=capacity,
        seed=5,
        strategy=strategy,
    )
    plan = sampler.plan_epoch(epoch, n_ranks)
    assert_array_equal(plan.items, sampler.plan_epoch(epoch, n_ranks).items)
    assert sorted(plan.items) == list(range(n))
    for number in range(len(plan)):
        step = plan.step(number)
        shares = [sampler.share(step, rank) for rank in range(n_ranks)]
        batches = [batch for share in shares for batch in share.micro_batches]
        assert_array_equal(np.sort(np.concatenate(batches)), np.sort(step.items))
        for rank, share in enumerate(shares):
            loads = [costs[batch].sum() for batch in share.micro_batches]
            assert share.loads[rank] == pytest.approx(sum(loads))
            assert strategy != "capped" or len(loads) <= 1
            for batch, load in zip(share.micro_batches, loads, strict=True):
                assert len(batch) == 1 or load <= capacity + 1e-9


@pytest.mark.parametrize("batch_by", ["count", "cost"])
def test_the_default_shares_windows_by_the_longest_first(batch_by):
    costs = np.random.default_rng(3).lognormal(size=200)
    sampler = Sampler(costs=costs, batch_size=24, batch_by=batch_by, seed=2)
    order, first = draw_order(200, 2, 1), 0
    plan = sampler.plan_epoch(1, 3)
    for number in range(len(plan)):
        window = order[first : first + len(plan.step(number).items)]
        first += len(window)
        ranks = assign_by_lpt(costs[window], 3)
        for rank in range(3):
            assert_array_equal(plan.share(number, rank), np.sort(window[ranks == rank]))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_steps_depend_on_the_ranks_or_not(strategy):
    """Where they do it is a fact of the training."""
    costs = np.random.default_rng(3).lognormal(size=100)
    sampler = Sampler(costs=costs, batch_size=16, seed=2, strategy=strategy, capacity=9.0)
    if strategy not in SAME_FOR_ALL_RANKS:
        assert sampler.describe_sharing(1) != sampler.describe_sharing(4)
        return
    one, four = sampler.plan_epoch(0, 1), sampler.plan_epoch(0, 4)
    assert len(one) == len(four) == 7
    for number in range(7):
        assert_array_equal(one.step(number).items, np.sort(four.step(number).items))
    assert sampler.describe_sharing(1) == sampler.describe_sharing(4) == {}


@pytest.mark.parametrize("strategy", ["next_fit", "mace_bins"])
@pytest.mark.parametrize("n_ranks", [1, 4])
def test_steps_of_bins_hold_a_batch_on_average(strategy, n_ranks):
    costs = np.random.default_rng(3).uniform(0.5, 1.5, size=2000)
    plan = Sampler(costs=costs, batch_size=40, strategy=strategy).plan_epoch(0, n_ranks)
    assert 50 <= len(plan) <= 60
    assert plan.sum_loads(costs).max() <= costs.mean() * 40 / n_ranks + 1e-9


def test_steps_of_algorithm_1_come_in_random_order():
    costs = np.random.default_rng(3).lognormal(size=800)
    sampler = Sampler(costs=costs, batch_size=10, seed=4, strategy="mace_bins")
    plan = sampler.plan_epoch(0, 2)
    by_size = pack_mace_bins(costs, draw_order(800, 4, 0), 2, costs.mean() * 10 / 2)
    largest, falling = [
        [costs[p.step(number).items].max() for number in range(len(p))] for p in (plan, by_size)
    ]
    assert sorted(largest) == sorted(falling)
    assert abs(np.corrcoef(np.arange(len(plan)), largest)[0, 1]) < 0.3
    assert np.corrcoef(np.arange(len(plan)), falling)[0, 1] < -0.5


def test_windows_by_count_and_by_cost():
    costs = np.r_[np.full(8, 1.0), 8.0]
    by_count = Sampler(costs=costs, batch_size=4, seed=1).plan_epoch(0, 1)
    assert np.diff(by_count.starts).tolist() == [4, 4, 1]
    assert len(Sampler(costs=costs, batch_size=5, batch_by="cost", seed=1).plan_epoch(0, 1)) == 2
    assert len(Sampler(costs=costs, batch_size="all").plan_epoch(0, 1)) == 1
    sampler = Sampler(costs=np.ones(2), batch_size=2)  # more ranks than samples
    step = sampler.plan_epoch(0, 4).step(0)
    assert [len(sampler.share(step, rank).micro_batches) for rank in range(4)] == [1, 1, 0, 0]
    sampler = Sampler(costs=np.ones(9), batch_size="all", strategy="mace_bins")
    with pytest.raises(ValueError, match=r"'mace_bins' fills bins.*set train.batch_size"):
        sampler.plan_epoch(0, 2)


@pytest.mark.parametrize(("strategy", "capacity"), [("balanced", np.inf), ("capped", 9.0)])
def test_times_share_a_step_and_costs_limit_memory(strategy, capacity):
    draw = np.random.default_rng(6)
    costs, times = draw.uniform(0.5, 1.5, size=(2, 100))
    sampler = Sampler(costs=costs, batch_size=20, capacity=capacity, seed=2, strategy=strategy)
    timed = replace(sampler, times=times)
    given, plan = sampler.plan_epoch(0, 3), timed.plan_epoch(0, 3)
    assert plan.report(times).efficiency > 0.95 > given.report(times).efficiency
    assert sorted(plan.items) == list(range(100))
    for number in range(len(plan)):
        step = plan.step(number)
        if strategy == "balanced":
            assert_array_equal(np.sort(step.items), np.sort(given.step(number).items))
        for rank in range(3):
            share = timed.share(step, rank)
            assert share.loads == pytest.approx([times[step.share(0, r)].sum() for r in range(3)])
            assert all(costs[batch].sum() <= capacity for batch in share.micro_batches)


def test_times_leave_windows_of_equal_cost_as_they_are():
    costs, times = np.random.default_rng(6).lognormal(size=(2, 100))
    sampler = Sampler(costs=costs, batch_size=16, batch_by="cost", seed=2)
    given, timed = sampler.plan_epoch(0, 2), replace(sampler, times=times).plan_epoch(0, 2)
    assert_array_equal(given.starts[::2], timed.starts[::2])


SETTINGS = {
    "train": {"batch_size": 4, "checkpoint_steps": 1},
    "model": {"n_train": 13},
}


@pytest.mark.mpi
def test_pairing_on_two_ranks_trains_as_the_default_on_one(tmp_path):
    alone = toy.train(tmp_path / "alone", **SETTINGS)
    run = toy.make_run(tmp_path / "pairs", partition={"strategy": "pairing"}, **SETTINGS)
    toy.train_on_ranks(tmp_path / "pairs", 2)
    assert_same_weights(read_weights(run), read_weights(alone), rtol=1e-9, atol=1e-11)


@pytest.mark.mpi
@pytest.mark.parametrize(
    "partition", [{"strategy": "mace_bins"}, {"strategy": "capped", "capacity": 60.0}]
)
def test_other_steps_train_too_and_start_afresh_on_other_ranks(tmp_path, partition):
    run = toy.train(tmp_path, partition=partition, **SETTINGS)
    assert read_history(run)[-1]["train"]["loss"] < read_history(run)[0]["train"]["loss"]
    errors = toy.train_on_ranks(tmp_path, 2)
    assert "another partition.strategy" in errors
    assert "starts afresh" in errors
    assert len(read_history(run)) == 3
    assert read_history(run)[-1]["train"]["loss"] < read_history(run)[0]["train"]["loss"]
