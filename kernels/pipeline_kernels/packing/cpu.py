"""The loops, compiled: each takes costs and the order in which to place the items."""

import numpy as np
from numpy.typing import NDArray

from pipeline_kernels.jit import njit

Costs = NDArray[np.float64]
Numbers = NDArray[np.int64]


@njit(nogil=True)
def assign_by_lpt(costs: Costs, order: Numbers, n_bins: int) -> Numbers:
    """Implement `bins.assign_by_lpt`."""
    bins = np.empty(len(costs), np.int64)
    _share(costs, np.zeros_like(costs), order, np.inf, bins, 0, n_bins)
    return bins


@njit(nogil=True)
def pack_balanced(
    costs: Costs,
    weights: Costs,
    order: Numbers,
    offsets: Numbers,
    n_ranks: int,
    capacity: float,
) -> tuple[Numbers, int, int]:
    """Implement `strategies.pack_balanced` for weights that do not exceed the capacity.

    Returns the bin of each item and the numbers of steps and of deferred items.
    """
    bins, was_deferred = np.empty(len(costs), np.int64), np.zeros(len(costs), np.bool_)
    waiting, n_windows = order[:0], len(offsets) - 1
    step = window = 0
    while window < n_windows or len(waiting):
        if window < n_windows and weights[waiting].sum() < n_ranks * capacity:
            waiting = np.concatenate((waiting, order[offsets[window] : offsets[window + 1]]))
            window += 1
        falling = waiting[np.argsort(-costs[waiting], kind="mergesort")]
        waiting = _share(costs, weights, falling, capacity, bins, step * n_ranks, n_ranks)
        was_deferred[waiting] = True
        step += 1
    return bins, step, was_deferred.sum()


@njit(nogil=True)
def _share(
    costs: Costs,
    weights: Costs,
    items: Numbers,
    capacity: float,
    bins: Numbers,
    first: int,
    n_ranks: int,
) -> Numbers:
    """Put items into the bins from `first` on, as they come; return those without room.

    The bins stand in a heap with the lightest at its root.
    """
    loads, rooms, heap = np.zeros(n_ranks), np.full(n_ranks, capacity), np.arange(n_ranks)
    largest_room = capacity  # at least that: it is looked up only when an item finds no room
    n_left = 0
    left = np.empty_like(items)
    for item in items:
        place = 0
        if rooms[heap[0]] < weights[item]:
            place = -1
            if weights[item] <= largest_room:
                place = _find_lightest(heap, loads, rooms, weights[item])
            if place < 0:
                largest_room = min(largest_room, rooms.max())
                left[n_left] = item
                n_left += 1
                continue
        rank = heap[place]
        bins[item] = first + rank
        loads[rank] += costs[item]
        rooms[rank] -= weights[item]
        _sift_down(heap, loads, place)
    return left[:n_left]


@njit(nogil=True)
def _find_lightest(heap: Numbers, loads: Costs, rooms: Costs, weight: float) -> int:
    """Return the place of the lightest bin that has room, or -1."""
    lightest = -1
    for place in range(len(heap)):
        if rooms[heap[place]] >= weight and (
            lightest < 0 or _is_lighter(heap[place], heap[lightest], loads)
        ):
            lightest = place
    return lightest


@njit(nogil=True)
def _sift_down(heap: Numbers, loads: Costs, place: int) -> None:
    moved = heap[place]
    while 2 * place + 1 < len(heap):
        child = 2 * place + 1
        if child + 1 < len(heap) and _is_lighter(heap[child + 1], heap[child], loads):
            child += 1
        if _is_lighter(moved, heap[child], loads):
            break
        heap[place] = heap[child]
        place = child
    heap[place] = moved


@njit(nogil=True)
def _is_lighter(a: int, b: int, loads: Costs) -> bool:
    lighter: bool = loads[a] < loads[b] or (loads[a] == loads[b] and a < b)
    return lighter


@njit(nogil=True)
def assign_by_first_fit(costs: Costs, order: Numbers, capacity: float) -> Numbers:
    """Implement `bins.split_by_capacity` for costs that do not exceed the capacity.

    The room left in the bins stands in the leaves of a binary tree whose inner nodes hold the
    larger of their two children, so that the first bin with room is found in one descent.
    """
    n_leaves = 1
    while n_leaves < len(costs):
        n_leaves *= 2
    room = np.full(2 * n_leaves, capacity)  # node k has the children 2k and 2k + 1
    bins = np.empty(len(costs), np.int64)
    for item in order:
        node = 1
        while node < n_leaves:
            node = 2 * node if room[2 * node] >= costs[item] else 2 * node + 1
        bins[item] = node - n_leaves
        room[node] -= costs[item]
        while node > 1:
            node //= 2
            room[node] = max(room[2 * node], room[2 * node + 1])
    return bins


@njit(nogil=True)
def pack_next_fit(costs: Costs, order: Numbers, capacity: float) -> tuple[Numbers, int]:
    """Implement `strategies.pack_next_fit`; returns the bin of each item and the number of bins."""
    bins = np.empty(len(costs), np.int64)
    load, n_bins = capacity, 0
    for item in order:
        if n_bins == 0 or load + costs[item] > capacity:
            load = 0.0
            n_bins += 1
        load += costs[item]
        bins[item] = n_bins - 1
    return bins, n_bins


@njit(nogil=True)
def fill_rounds(
    sizes: Costs, falling: Numbers, n_ranks: int, capacity: float
) -> tuple[Numbers, int]:
    """Implement `strategies.pack_mace_bins` for sizes that do not exceed the capacity.

    The open bins need no sorting after a round: they stood in order of rising room and took samples
    of falling size. Sorted lists of bins are merged instead.
    """
    bins = np.empty(len(sizes), np.int64)
    n_bins = placed = 0
    while placed < len(sizes):
        exact = sizes[falling[placed:]].sum() / capacity
        needed = np.ceil(exact * (1 - 1e-12))  # rounding alone adds no bin
        n_new = max(1, int(np.ceil(needed / n_ranks))) * n_ranks
        placed = _fill(sizes, falling, placed, capacity, bins, n_bins, n_new)
        n_bins += n_new
    return bins, n_bins


@njit(nogil=True)
def _fill(
    sizes: Costs,
    falling: Numbers,
    placed: int,
    capacity: float,
    bins: Numbers,
    first: int,
    n_new: int,
) -> int:
    """Fill new bins, numbered from `first`, with `falling[placed:]`; return where it ended."""
    rooms = np.full(n_new, capacity)
    opened, closed = np.arange(n_new), np.arange(0)
    while placed < len(falling) and len(opened):
        fits = np.ones(len(opened), np.bool_)
        for number, one in enumerate(opened):
            if placed == len(falling):
                break
            item = falling[placed]
            fits[number] = rooms[one] >= sizes[item]
            if fits[number]:
                bins[item] = first + one
                rooms[one] -= sizes[item]
                placed += 1
        closed = _merge(closed, opened[~fits], rooms)
        opened = opened[fits]
        if len(opened) and len(closed) and rooms[opened[0]] < rooms[closed[-1]]:
            opened, closed = _merge(opened, closed, rooms), closed[:0]
    return placed


@njit(nogil=True)
def _merge(first: Numbers, second: Numbers, keys: Costs) -> Numbers:
    """Merge two lists of numbers that are sorted by their keys, stably."""
    merged = np.empty(len(first) + len(second), np.int64)
    i = j = 0
    for place in range(len(merged)):
        if j == len(second) or (i < len(first) and keys[first[i]] <= keys[second[j]]):
            merged[place] = first[i]
            i += 1
        else:
            merged[place] = second[j]
            j += 1
    return merged


@njit(nogil=True)
def group(bins: Numbers, n_bins: int) -> tuple[Numbers, Numbers]:
    """Return the items sorted by bin and number, and where each bin begins, `(n_bins + 1,)`."""
    starts = np.zeros(n_bins + 1, np.int64)
    for one in bins:
        starts[one + 1] += 1
    starts = np.cumsum(starts)
    ends, items = starts[:-1].copy(), np.empty(len(bins), np.int64)
    for item, one in enumerate(bins):
        items[ends[one]] = item
        ends[one] += 1
    return items, starts


@njit(nogil=True)
def is_permutation(order: Numbers) -> bool:
    """Test that `order` is a permutation of the numbers from 0."""
    seen = np.zeros(len(order), np.bool_)
    for item in order:
        if not 0 <= item < len(order) or seen[item]:
            return False
        seen[item] = True
    return True
