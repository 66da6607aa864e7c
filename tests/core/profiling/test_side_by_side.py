"""Steps of several ranks at once. Oracles: the trainer's own sampler, and what the model sleeps."""

from functools import partial

import numpy as np
import pytest

from pipeline_core.profiling.side_by_side import measure_side_by_side
from tiers import exhaustive
from toy_potential import die, load_run_on_cpu, make_run, sum_edges

SLEEP = 1e-4  # s an edge
RANKS, THREADS = 2, 1


@pytest.fixture
def load(tmp_path):
    make_run(tmp_path, {"batch_size": 8}, model={"n_train": 40, "seconds_per_edge": SLEEP})
    return partial(load_run_on_cpu, tmp_path)


@pytest.mark.slow
def test_each_process_does_the_share_of_its_rank(load):
    edges = sum_edges(load(), RANKS)
    both = measure_side_by_side(load, RANKS, RANKS, "cpu", THREADS)
    first, second = (np.resize(edges[:, k], 10_000)[2:] for k in range(RANKS))
    n = len(both.seconds)
    splits = [[*first[:k], *second[: n - k]] for k in range(1, n)]
    assert both.totals["edge"].tolist() in splits
    # A busy machine only adds to what the model sleeps, and ranks wait for the slower one.
    assert (both.seconds > SLEEP * both.totals["edge"]).all()
    assert both.together > SLEEP * edges.max(1).mean() * 0.9
    assert both.memory is None or both.memory > 1e7


@exhaustive
@pytest.mark.slow
def test_one_rank_of_several_is_measured_alone(load):
    edges = sum_edges(load(), RANKS)[:, 0]
    one = measure_side_by_side(load, RANKS, 1, "cpu", THREADS)
    assert one.totals["edge"].tolist() == np.resize(edges, len(one.seconds) + 2)[2:].tolist()
    assert one.together is None


@pytest.mark.slow
def test_what_a_process_refuses_is_said(load):
    load().partition.write_bytes(b"")
    with pytest.raises(ValueError, match=r"partition\.h5: "):
        measure_side_by_side(load, RANKS, 1, "cpu", THREADS)


@pytest.mark.slow
def test_a_process_that_is_killed_is_missed(tmp_path):
    with pytest.raises(ValueError, match="ended without a message: probably it had too little"):
        measure_side_by_side(partial(die, tmp_path), RANKS, 1, "cpu", THREADS)
