"""Which cases of a sweep `make test` runs, and which only `make test-all`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations, product
from typing import Any

import pytest

exhaustive = pytest.mark.exhaustive


def cover_pairs(*axes: Iterable[Any]) -> list[Any]:
    """List the product of options: cases that cover each pair of values, and the others.

    Most faults of options show where two of them meet. Cases are taken greedily, in the order of
    the product; what they leave over is marked `exhaustive`.

    Args:
        *axes: The values of each option.

    Returns:
        Parameters for `pytest.mark.parametrize`, one value of each option in each.
    """
    options = [list(axis) for axis in axes]
    cases = list(product(*(range(len(values)) for values in options)))
    first, open_pairs = set(), {pair for case in cases for pair in _list_pairs(case)}
    while open_pairs:
        best = max(cases, key=lambda case: len(open_pairs.intersection(_list_pairs(case))))
        first.add(best)
        open_pairs.difference_update(_list_pairs(best))
    return [
        pytest.param(
            *(values[place] for values, place in zip(options, case, strict=True)),
            marks=() if case in first else exhaustive,
        )
        for case in cases
    ]


def run_first(values: Iterable[Any], *first: Any) -> list[Any]:
    """List values of one option, of which those named run in both tiers (by default the first)."""
    listed = list(values)
    chosen = first or listed[:1]
    return [value if value in chosen else pytest.param(value, marks=exhaustive) for value in listed]


def _list_pairs(case: Sequence[int]) -> list[tuple[tuple[int, int], ...]]:
    places = list(enumerate(case))
    return list(combinations(places, min(2, len(places))))
