"""The public functions that put samples into bins."""

import numpy as np
from numpy.typing import ArrayLike

from pipeline_kernels.packing import cpu
from pipeline_kernels.packing.cpu import Costs, Numbers


def assign_by_lpt(costs: ArrayLike, n_bins: int) -> Numbers:
    """Share items between bins so that the fullest bin is as light as a simple rule makes it.

    Longest processing time: items in order of falling cost, each into the bin that is lightest
    so far. The fullest bin weighs at most 4/3 - 1/(3 n_bins) of the least possible (Graham 1969).
    Equal costs are taken in order of their number, equal bins too.

    Args:
        costs: `(n_items,)`, not negative.
        n_bins: number of bins, at least 1; some stay empty if there are fewer items.

    Returns:
        The bin of each item, `(n_items,)` int64.

    Raises:
        ValueError: if a cost is negative or not finite, or `n_bins` is 0.
    """
    costs = check_costs(costs)
    if n_bins < 1:
        raise ValueError(f"n_bins: expected at least 1, got {n_bins}")
    bins: Numbers = cpu.assign_by_lpt(costs, _sort_falling(costs), n_bins)
    return bins


def cut_windows(costs: ArrayLike, order: ArrayLike, mean_items: float) -> Numbers:
    """Cut a sequence of items into consecutive windows of about equal cost.

    Each cut lies at the item boundary next to its place on the scale of summed cost, moved on
    where a window would be left without an item.

    Args:
        costs: `(n_items,)`, not negative.
        order: the sequence, a permutation of the item numbers, `(n_items,)`.
        mean_items: items that a window holds on average; the number of windows is
            `n_items / mean_items`, rounded, at least 1.

    Returns:
        Offsets, `(n_windows + 1,)` int64: window `w` is `order[offsets[w]:offsets[w + 1]]`. One
        zero if there are no items.

    Raises:
        ValueError: if a cost is negative or not finite, or the numbers do not fit together.
    """
    costs, order = check_costs(costs), np.asarray(order, dtype=np.int64)
    if order.shape != costs.shape or mean_items < 1:
        raise ValueError(
            f"order, mean_items: expected a permutation of {len(costs)} items and at least 1, "
            f"got shape {order.shape} and {mean_items}"
        )
    if not len(costs):
        return np.zeros(1, np.int64)
    n_windows = max(1, round(len(costs) / mean_items))
    summed = np.cumsum(costs[order] if costs.any() else np.ones_like(costs))
    targets = summed[-1] * np.arange(1, n_windows) / n_windows
    after = np.searchsorted(summed, targets)  # the item that a cut falls into
    before = np.concatenate([[0.0], summed])[after]
    cuts = after + (targets - before > summed[after] - targets)
    numbers = np.arange(1, n_windows)
    cuts = np.maximum.accumulate(np.maximum(cuts, 1) - numbers) + numbers
    cuts = np.minimum(cuts, len(costs) - n_windows + numbers)
    return np.concatenate([[0], cuts, [len(costs)]]).astype(np.int64)


def split_by_capacity(costs: ArrayLike, capacity: float) -> Numbers:
    """Put items into few bins, none heavier than `capacity`.

    First fit decreasing: items in order of falling cost, each into the first bin that has room.
    The number of bins is at most 11/9 of the least possible plus a constant (Johnson 1974). An item
    heavier than `capacity` cannot be split and has a bin of its own.

    Args:
        costs: `(n_items,)`, not negative.
        capacity: largest cost of a bin, positive; infinity puts all items into one bin.

    Returns:
        The bin of each item, `(n_items,)` int64, numbered from 0 without gaps.

    Raises:
        ValueError: if a cost is negative or not finite, or the capacity is not positive.
    """
    costs = check_costs(costs)
    check_capacity(capacity)
    if capacity == np.inf or not len(costs):
        return np.zeros(len(costs), np.int64)
    bins: Numbers = cpu.assign_by_first_fit(
        np.minimum(costs, capacity), _sort_falling(costs), float(capacity)
    )
    return bins


def check_costs(costs: ArrayLike) -> Costs:
    """Return costs as `(n_items,)` float64.

    Raises:
        ValueError: if one is negative or not finite.
    """
    costs = np.ascontiguousarray(costs, dtype=np.float64)
    if costs.ndim != 1 or not (np.isfinite(costs) & (costs >= 0)).all():
        raise ValueError("costs: expected finite numbers, none negative, of shape (n_items,)")
    return costs


def check_capacity(capacity: float) -> None:
    """Raise `ValueError` unless a capacity is positive."""
    if not capacity > 0:
        raise ValueError(f"capacity: expected a positive number, got {capacity}")


def _sort_falling(costs: Costs) -> Numbers:
    return np.argsort(-costs, kind="stable")
