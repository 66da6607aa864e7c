"""Sharing of samples of unequal cost.

Oracles: Graham's worst case (1969); the fewest bins of all assignments by enumeration, of which
first fit decreasing needs at most 11/9 + 6/9 (Dosa, LNCS 4614, 1, 2007); Python's `heapq`.
"""

import heapq
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from pipeline_kernels.packing import assign_by_lpt, cut_windows, measure_balance, split_by_capacity


def find_fullest(costs, bins, n_bins):
    return np.bincount(bins, weights=costs, minlength=n_bins).max()


def count_least_bins(costs, capacity):
    n = len(costs)
    fits = [a for a in product(range(n), repeat=n) if find_fullest(costs, a, n) <= capacity]
    return min(len(set(a)) for a in fits)


@pytest.mark.parametrize("m", [2, 3, 5, 8])
def test_lpt_meets_the_bound_in_grahams_worst_case(m):
    costs = [c for c in range(2 * m - 1, m, -1) for _ in range(2)] + [m, m, m]  # optimum 3m
    assert find_fullest(costs, assign_by_lpt(costs, m), m) == 4 * m - 1


@settings(max_examples=15)
@given(costs=st.lists(st.integers(0, 9), max_size=200), n_bins=st.integers(1, 20))
def test_lpt_takes_ties_in_order(costs, n_bins):
    heap, expected = [(0, b) for b in range(n_bins)], [0] * len(costs)
    for item in sorted(range(len(costs)), key=lambda i: (-costs[i], i)):
        load, expected[item] = heapq.heappop(heap)
        heapq.heappush(heap, (load + costs[item], expected[item]))
    assert assign_by_lpt(costs, n_bins).tolist() == expected


@settings(max_examples=15)
@given(
    costs=st.lists(st.floats(0.1, 10), min_size=1, max_size=300),
    mean_items=st.floats(1, 40),
    seed=st.integers(0, 99),
)
def test_windows_are_consecutive_and_of_equal_cost(costs, mean_items, seed):
    costs = np.array(costs)
    order = np.random.default_rng(seed).permutation(len(costs))
    offsets = cut_windows(costs, order, mean_items)
    assert offsets[0] == 0
    assert offsets[-1] == len(costs)
    assert (np.diff(offsets) >= 1).all()
    assert len(offsets) - 1 == max(1, round(len(costs) / mean_items))
    if costs.max() <= costs.sum() / (
        len(offsets) - 1
    ):  # else a window of one item may be too heavy
        loads = np.add.reduceat(costs[order], offsets[:-1])
        assert (abs(loads - loads.mean()) <= costs.max() + 1e-9).all()


def test_windows_of_equal_items_hold_equal_numbers():
    assert cut_windows(np.ones(12), np.arange(12), 4).tolist() == [0, 4, 8, 12]
    assert cut_windows(np.zeros(12), np.arange(12), 4).tolist() == [0, 4, 8, 12]
    assert cut_windows([], [], 4).tolist() == [0]


@settings(max_examples=15)
@given(costs=st.lists(st.integers(1, 10), min_size=1, max_size=5), capacity=st.integers(10, 25))
def test_split_stays_within_capacity_and_dosas_bound(costs, capacity):
    bins = split_by_capacity(costs, capacity)
    assert find_fullest(costs, bins, len(costs)) <= capacity
    n_bins = bins.max() + 1
    assert_array_equal(np.unique(bins), np.arange(n_bins))
    assert n_bins <= 11 / 9 * count_least_bins(costs, capacity) + 6 / 9


@settings(max_examples=15)
@given(costs=st.lists(st.integers(1, 30), max_size=80), capacity=st.integers(5, 40))
def test_split_is_first_fit_decreasing(costs, capacity):
    room, expected = [], [0] * len(costs)
    for item in sorted(range(len(costs)), key=lambda i: (-costs[i], i)):
        cost = min(costs[item], capacity)
        first = next((b for b, r in enumerate(room) if r >= cost), len(room))
        room += [capacity] * (first == len(room))
        room[first] -= cost
        expected[item] = first
    assert split_by_capacity(costs, capacity).tolist() == expected


def test_an_item_above_capacity_is_alone():
    bins = split_by_capacity([1, 50, 1, 60], 10)
    assert bins[0] == bins[2]
    assert len(set(bins)) == 3
    assert not split_by_capacity([1, 50, 1, 60], np.inf).any()


def test_balance_report_by_hand():
    report = measure_balance([[1, 3], [2, 2]])
    assert report.efficiency == pytest.approx((2 + 2) / (3 + 2))
    assert report.variation == pytest.approx(np.sqrt(0.5) / 2)
    assert measure_balance([[1, 3], [4, 4]]).variation_in_steps == pytest.approx(np.sqrt(0.5) / 3)
    assert report.padding == pytest.approx(1 - 2 / 3)
    assert measure_balance(np.zeros((0, 4))).efficiency == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda: assign_by_lpt([1, -1], 2),
        lambda: assign_by_lpt([1, np.nan], 2),
        lambda: assign_by_lpt([[1.0]], 2),
        lambda: assign_by_lpt([1], 0),
        lambda: cut_windows([1, 2], [0], 1),
        lambda: cut_windows([1, 2], [0, 1], 0.5),
        lambda: split_by_capacity([1], 0),
        lambda: measure_balance([1, 2]),
    ],
)
def test_wrong_input_is_refused(call):
    with pytest.raises(ValueError, match="expected"):
        call()
