"""Windows, shares and micro-batches: every sample once, windows alike for any number of ranks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_core.training.sampler import Sampler

sizes = st.one_of(st.integers(1, 30), st.just("all"))


@settings(deadline=None, max_examples=60)
@given(
    n=st.integers(1, 60),
    batch_size=sizes,
    batch_by=st.sampled_from(["count", "cost"]),
    n_ranks=st.integers(1, 5),
    capacity=st.sampled_from([2.0, 8.0, np.inf]),
    epoch=st.integers(0, 3),
)
def test_each_sample_once(n, batch_size, batch_by, n_ranks, capacity, epoch):
    costs = np.random.default_rng(n).lognormal(size=n)
    sampler = Sampler(
        costs=costs, batch_size=batch_size, batch_by=batch_by, capacity=capacity, seed=5
    )
    windows = sampler.windows(epoch)
    assert sorted(np.concatenate(windows)) == list(range(n))
    for window in windows:
        shares = [sampler.share(window, rank, n_ranks) for rank in range(n_ranks)]
        batches = [batch for share in shares for batch in share.micro_batches]
        assert sorted(np.concatenate(batches)) == sorted(window)
        for rank, share in enumerate(shares):
            loads = [costs[batch].sum() for batch in share.micro_batches]
            assert share.loads[rank] == pytest.approx(sum(loads))
            for batch, load in zip(share.micro_batches, loads, strict=True):
                assert len(batch) == 1 or load <= capacity + 1e-9


def test_windows_by_count_and_by_cost():
    costs = np.r_[np.full(8, 1.0), 8.0]
    by_count = Sampler(costs=costs, batch_size=4, seed=1).windows(0)
    assert [len(window) for window in by_count] == [4, 4, 1]
    by_cost = Sampler(costs=costs, batch_size=5, batch_by="cost", seed=1).windows(0)
    assert len(by_cost) == 2
    everything = Sampler(costs=costs, batch_size="all").windows(0)
    assert [len(window) for window in everything] == [9]


def test_more_ranks_than_samples_leave_some_without_work():
    sampler = Sampler(costs=np.ones(2), batch_size=2)
    shares = [sampler.share(np.array([1, 0]), rank, 4) for rank in range(4)]
    assert [len(share.micro_batches) for share in shares] == [1, 1, 0, 0]
