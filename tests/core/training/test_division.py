"""How ranks divide samples. Oracle: the rule by hand."""

import numpy as np
import pytest
import torch

from pipeline_core.config.sections import TrainOptions
from pipeline_core.distributed.ranks import Ranks
from pipeline_core.distributed.world import World
from pipeline_core.system.memory import NoRoomError
from pipeline_core.task import build_task
from pipeline_core.training import division
from pipeline_core.training.balance.sampler import Sampler
from pipeline_core.training.division import find_large, find_whole_limit, share_whole
from toy_potential import make_run

COSTS = np.array([1.0, 100.0, 2.0, 30.0, 3.0, 20.0])


@pytest.mark.parametrize(
    ("n_ranks", "capacity", "divided"),
    [(1, np.inf, []), (1, 50.0, [1]), (2, np.inf, [1]), (4, np.inf, [1, 3]), (4, 10.0, [1, 3, 5])],
)
def test_structures_above_a_part_of_the_costliest_are_divided(n_ranks, capacity, divided):
    limit = find_whole_limit(COSTS, capacity, n_ranks)
    shared, whole, owners = share_whole(COSTS, np.arange(6), limit, n_ranks)
    assert shared.tolist() == divided
    assert sorted([*shared, *whole]) == [*range(6)]
    assert len(owners) == len(whole)


def test_whole_structures_are_shared_by_cost_and_equal_ones_all_divided():
    limit = find_whole_limit(COSTS, np.inf, 4)
    _, whole, owners = share_whole(COSTS, np.array([5, 4, 2, 1, 0]), limit, 4)
    loads = np.bincount(owners, COSTS[whole], 4)
    assert sorted(loads) == [1.0, 2.0, 3.0, 20.0]
    costs = np.ones(5)
    shared, whole, _ = share_whole(costs, np.arange(5), find_whole_limit(costs, 9.0, 2), 2)
    assert (len(shared), len(whole)) == (5, 0)


@pytest.mark.parametrize(
    ("n_ranks", "capacity", "reason"),
    [
        (1, 50.0, None),
        (2, np.inf, "costs 100, more than twice a rank's share of a step, 39"),
        (2, 30.0, "costs 100, more than partition.capacity, 30"),
    ],
)
def test_what_costs_more_than_a_share_is_to_be_divided(n_ranks, capacity, reason):
    """156 in two steps of three samples each."""
    said = find_large(Sampler(costs=COSTS, batch_size=3, capacity=capacity), n_ranks)
    assert said == (reason and f"a structure {reason}")


@pytest.mark.parametrize(
    ("cost", "count", "batch_size", "n_ranks"),
    [(1.0, 8, 4, 2), (7.0, 9, 2, 2), (0.1, 300, 4, 4), (0.7, 30, 3, 3)],
)
def test_equal_structures_stay_whole(cost, count, batch_size, n_ranks):
    """Also where the last step is short, and where shares are rounded."""
    sampler = Sampler(costs=np.full(count, cost), batch_size=batch_size)
    assert find_large(sampler, n_ranks) is None


def test_a_rank_that_alone_lacks_memory_chooses_nothing_else(tmp_path, monkeypatch):
    def refuse(*_):
        raise NoRoomError("no room")

    monkeypatch.setattr(division, "ByDomains", refuse)
    monkeypatch.setattr(division, "find_large", lambda *_: "a structure is large")
    with pytest.raises(NoRoomError):
        choose(tmp_path, 2, 1)


def choose(tmp_path, n_ranks, batch_size):
    run = make_run(tmp_path, {"batch_size": batch_size}, partition={"parts": "auto"})
    ranks = Ranks(World("torchrun", 0, n_ranks), torch.device("cpu"))
    options = run.get_section("train", TrainOptions)
    return division.make_division(run, build_task(run), options, ranks)


@pytest.mark.slow
def test_auto_says_what_it_chose(tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO")
    assert isinstance(choose(tmp_path, 2, "all"), division.BySamples)
    assert "partition.parts: samples, since none costs twice" in caplog.text

    class Divided:
        def __init__(self, *_):
            pass

    class Refused:
        def __init__(self, *_):
            raise ValueError("it exchanges nothing")

    monkeypatch.setattr(division, "ByDomains", Refused)
    assert isinstance(choose(tmp_path, 2, 1), division.BySamples)
    assert "partition.parts: samples, although a structure costs" in caplog.text
    assert "it exchanges nothing" in caplog.text
    monkeypatch.setattr(division, "ByDomains", Divided)
    assert isinstance(choose(tmp_path, 2, 1), Divided)
    assert "partition.parts: graph, since a structure costs" in caplog.text
