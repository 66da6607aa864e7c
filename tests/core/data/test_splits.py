"""Splits. Oracles: the definition of each method, and exhaustive search for whole groups."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_atoms.importing.columns import Columns, count_elements, format_formula
from pipeline_core.config.datasets import Split
from pipeline_core.data.splits import (
    count_groups,
    count_splits,
    divide_rows,
    list_empty_splits,
)
from pipeline_core.fields import SPLITS

TRAIN, VAL, TEST = range(3)
fractions = st.sampled_from([0.0, 0.05, 0.1, 0.2, 0.25, 1 / 3])


def make_columns(groups=(), *, n=0, numbers=None, splits=None) -> Columns:
    """Samples with these groups, Z of their only atom and splits."""
    groups = list(groups) or [""] * n
    columns = Columns()
    for i, group in enumerate(groups):
        z = np.array([numbers[i]] if numbers is not None else [1], np.int32)
        split = -1 if splits is None or splits[i] is None else SPLITS.index(splits[i])
        columns.add(columns.compositions.number(count_elements(z)), group, 1, 0.0, split)
    return columns


def divide(columns, options, first=None):
    return columns.divide(options, first)


def count_sizes(codes) -> list[int]:
    return np.bincount(codes, minlength=3).tolist()


@pytest.mark.parametrize("method", ["random", "composition"])
@pytest.mark.parametrize(
    ("n", "val", "test", "expected"),
    [
        (100, 0.1, 0.1, [80, 10, 10]),
        (30, 0.1, 0.1, [24, 3, 3]),
        (1000, 0.05, 0.2, [750, 50, 200]),
        (10, 0.0, 0.0, [10, 0, 0]),
        (10, 0.3, 0.0, [7, 3, 0]),
        (1, 0.1, 0.1, [1, 0, 0]),
    ],
)
def test_sizes_are_the_fractions(method, n, val, test, expected):
    codes = divide(make_columns(n=n), Split(method=method, val=val, test=test))
    assert count_sizes(codes) == expected


def test_rows_of_a_table_are_divided_like_samples_and_equal_ones_together():
    rows = np.random.default_rng(0).normal(size=(40, 2))
    energy, options = np.arange(40.0), Split(val=0.2, test=0.2, seed=3)
    codes = divide_rows(rows, energy, options)
    np.testing.assert_array_equal(codes, divide(make_columns(n=40), options))
    twice = divide_rows(np.concatenate([rows, rows]), np.tile(energy, 2), options)
    np.testing.assert_array_equal(twice[:40], twice[40:])
    highest = divide_rows(rows, energy, Split(method="energy", val=0.2, test=0.1))
    np.testing.assert_array_equal(highest, [TRAIN] * 28 + [VAL] * 8 + [TEST] * 4)
    names = ["a", "b"] * 20
    by_name = divide_rows(rows, energy, Split(method="list", test_groups=["b"]), names)
    np.testing.assert_array_equal(by_name, [TRAIN, TEST] * 20)


def test_random_holds_out_every_sample_equally_often():
    columns = make_columns(n=20)
    counts = sum(divide(columns, Split(val=0.2, test=0.0, seed=s)) == VAL for s in range(1000))
    # Binomial, 1000 draws at 0.2: standard deviation 12.6
    assert np.abs(counts - 200).max() < 5 * 12.6


@given(
    numbers=st.lists(st.integers(1, 8), min_size=10, max_size=200),
    val=fractions,
    test=fractions,
    seed=st.integers(0, 5),
)
@settings(max_examples=60, deadline=None)
def test_each_composition_is_divided_alike(numbers, val, test, seed):
    split = Split(method="composition", val=val, test=test, seed=seed)
    codes = divide(make_columns(n=len(numbers), numbers=numbers), split)
    held = Counter(z for z, c in zip(numbers, codes, strict=True) if c != TRAIN)
    tested = Counter(z for z, c in zip(numbers, codes, strict=True) if c == TEST)
    for z, n in Counter(numbers).items():
        assert abs(held[z] - n * (val + test)) < 1
        assert abs(tested[z] - n * test) < 2


def test_compositions_are_reduced_formulas():
    columns = Columns()
    for numbers in [[72, 8, 8], [8, 72, 8, 8, 72, 8]] * 50:
        composition = count_elements(np.array(numbers, np.int32))
        assert format_formula(composition) == "HfO2"
        columns.add(columns.compositions.number(composition), "", len(numbers), 0.0, -1)
    assert len(columns.compositions) == 2
    assert count_sizes(divide(columns, Split(method="composition"))) == [80, 10, 10]


@pytest.mark.slow
@given(
    counts=st.lists(st.integers(1, 12), min_size=3, max_size=9),
    fraction=st.sampled_from([0.05, 0.1, 0.2, 0.3]),
    seed=st.integers(0, 3),
)
@settings(max_examples=80, deadline=None)
def test_whole_groups_come_as_near_to_the_fraction_as_any_choice(counts, fraction, seed):
    groups = [f"g{i}" for i, n in enumerate(counts) for _ in range(n)]
    codes = divide(make_columns(groups), Split(method="group", val=0.0, test=fraction, seed=seed))
    by_group = {g: {c for h, c in zip(groups, codes, strict=True) if h == g} for g in set(groups)}
    assert all(len(result) == 1 for result in by_group.values())
    target = round(fraction * len(groups))
    choices = [sum(c) for k in range(len(counts)) for c in combinations(counts, k)]
    best = min(abs(total - target) for total in choices)
    result = count_sizes(codes)[TEST]
    if abs(target) == best:  # no group is nearest, but something has to be held out
        assert result == min(counts) or abs(result - target) == best
    else:
        assert abs(result - target) == best
    assert result > 0


def test_large_groups_are_held_out_although_none_is_nearer():
    split = Split(method="group", val=0.1, test=0.1)
    codes = divide(make_columns([f"run{i}" for i in range(4) for _ in range(100)]), split)
    assert count_sizes(codes) == [200, 100, 100]
    assert count_sizes(divide(make_columns(["a"] * 9), split)) == [9, 0, 0]
    assert count_sizes(divide(make_columns(["a"] * 9 + ["b"]), split)) == [9, 0, 1]
    many = [f"g{g}" for g in np.random.default_rng(0).integers(0, 3000, 20_000)]
    assert count_sizes(divide(make_columns(many), split)) == [16_000, 2_000, 2_000]


@given(
    energies=st.lists(st.floats(-1e3, 1e3), min_size=10, max_size=80, unique=True),
    val=fractions,
    test=fractions,
)
@settings(max_examples=60, deadline=None)
def test_the_highest_energies_per_atom_are_held_out(energies, val, test):
    columns, n = Columns(), len(energies)
    for i, energy in enumerate(energies):
        columns.add(0, "", 1 + i % 3, energy * (1 + i % 3), -1)
    codes = divide(columns, Split(method="energy", val=val, test=test))
    n_val, n_test = round(val * n), round(test * n)
    assert count_sizes(codes) == [n - n_val - n_test, n_val, n_test]
    rising = np.argsort(energies)
    assert codes[rising].tolist() == sorted(codes, key=[TRAIN, VAL, TEST].index)


@pytest.mark.parametrize("method", ["random", "group"])
def test_samples_are_chosen_by_the_seed(method):
    columns = make_columns([f"g{i % 40}" for i in range(400)])
    seeds = (0, 1, 2, 3, 4, 0)
    result = [divide(columns, Split(method=method, seed=seed)) for seed in seeds]
    assert len({tuple(codes.tolist()) for codes in result}) == 5
    assert all(count_sizes(codes) == [320, 40, 40] for codes in result)
    np.testing.assert_array_equal(result[0], result[-1])
    first = np.arange(len(columns))  # without equal samples these change nothing
    np.testing.assert_array_equal(result[0], divide(columns, Split(method=method), first))


def test_lists_name_groups_and_patterns():
    groups = ["hot/1", "hot/2", "cold/1", "cold/2", "warm"]
    split = Split(method="list", val_groups=["hot/*"], test_groups=["warm"])
    assert divide(make_columns(groups), split).tolist() == [VAL, VAL, TRAIN, TRAIN, TEST]


def test_splits_that_cannot_be_are_refused():
    lists = Split(method="list", val_groups=["hot"], test_groups=["cold", "h*"])
    sources = make_columns(["a", "a", "b", "b"], splits=["test", "test", None, None])
    without_energy = make_columns(n=9)
    without_energy.add(0, "", 1, np.nan, -1)
    for columns, split, message in (
        (make_columns(["hot", "cold"]), lists, "'hot' is in val_groups and in test_groups"),
        (
            make_columns(["cold"]),
            Split(method="list", test_groups=["c*"]),
            "no sample for training",
        ),
        (sources, Split(method="list", val_groups=["a"]), r"no group matches 'a'.*groups: b"),
        (without_energy, Split(method="energy"), "'energy': 1 of 10 samples have no energy"),
    ):
        with pytest.raises(ValueError, match=message):
            divide(columns, split)


def test_sources_keep_their_split():
    splits = ["test", None, "train", None, "val", None] * 20
    codes = divide(make_columns(n=120, splits=splits), Split(val=0.5, test=0.0))
    for code, name in zip(codes, splits, strict=True):
        assert name is None or SPLITS[code] == name
    free = [c for c, name in zip(codes, splits, strict=True) if name is None]
    assert count_sizes(np.array(free)) == [30, 30, 0]


def test_splits_and_groups_are_counted():
    codes = np.array([0, 0, 1, 0, 0], dtype=np.int8)
    group = np.array([1, 0, 1, 1, 2])
    assert count_splits(codes) == {"train": 4, "val": 1, "test": 0}
    assert count_groups(["a", "b", "c"], group, codes) == {
        "count": 3,
        "largest": {
            "b": {"train": 2, "val": 1, "test": 0},
            "a": {"train": 1, "val": 0, "test": 0},
            "c": {"train": 1, "val": 0, "test": 0},
        },
    }
    assert list_empty_splits(codes, Split(val=0.2, test=0.2)) == ["test"]
    assert list_empty_splits(codes[:0], Split(val=0.2, test=0.0)) == ["val"]
    assert count_groups([], group[:0], codes[:0]) == {"count": 0, "largest": {}}
