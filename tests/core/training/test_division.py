"""How ranks divide samples. Oracle: the rule by hand."""

import numpy as np
import pytest

from pipeline_core.training.division import find_whole_limit, share_whole

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


def test_whole_structures_are_shared_by_cost():
    limit = find_whole_limit(COSTS, np.inf, 4)
    _, whole, owners = share_whole(COSTS, np.array([5, 4, 2, 1, 0]), limit, 4)
    loads = np.bincount(owners, COSTS[whole], 4)
    assert sorted(loads) == [1.0, 2.0, 3.0, 20.0]


def test_equal_structures_are_all_divided():
    costs = np.ones(5)
    shared, whole, _ = share_whole(costs, np.arange(5), find_whole_limit(costs, 9.0, 2), 2)
    assert len(shared) == 5
    assert len(whole) == 0
