"""The loops, compiled: each takes costs and the order in which to place the items."""

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def lpt(costs, order, n_bins):
    """Implements `bins.lpt`; the bins stand in a heap with the lightest at its root."""
    bins = np.empty(len(costs), np.int64)
    loads = np.zeros(n_bins)
    heap = np.arange(n_bins)
    for item in order:
        lightest = heap[0]
        bins[item] = lightest
        loads[lightest] += costs[item]
        _sift_down(heap, loads)
    return bins


@njit(cache=True, nogil=True)
def _sift_down(heap, loads):
    moved, place = heap[0], 0
    while 2 * place + 1 < len(heap):
        child = 2 * place + 1
        if child + 1 < len(heap) and _lighter(heap[child + 1], heap[child], loads):
            child += 1
        if _lighter(moved, heap[child], loads):
            break
        heap[place] = heap[child]
        place = child
    heap[place] = moved


@njit(cache=True, nogil=True)
def _lighter(a, b, loads):
    return loads[a] < loads[b] or (loads[a] == loads[b] and a < b)


@njit(cache=True, nogil=True)
def first_fit(costs, order, capacity):
    """Implements `bins.split_by_capacity` for costs that do not exceed the capacity.

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
