"""Ways to share an epoch between ranks, each from costs and a shuffled order to a `Plan`.

Two kinds: those that share given windows of the order, so that the samples of a step are the same
for any number of ranks, and those that fill bins up to a capacity and call consecutive bins a step.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from pipeline_kernels.packing import cpu
from pipeline_kernels.packing.bins import check_capacity, check_costs
from pipeline_kernels.packing.cpu import Costs, Numbers
from pipeline_kernels.packing.plan import Plan


def pack_balanced(
    costs: ArrayLike,
    order: ArrayLike,
    offsets: ArrayLike,
    n_ranks: int,
    capacity: float = math.inf,
    weights: ArrayLike | None = None,
) -> Plan:
    """Share each window so that all ranks have about the same cost, within a capacity.

    Longest processing time, as `assign_by_lpt`, among the ranks that have room: an item goes to the
    rank whose share costs least so far and stays within the capacity with it. An item that no rank
    has room for is deferred: it competes with samples of the next window, and no window is opened
    before the deferred items fit into one step. Windows of equal cost come from `cut_windows`.

    Args:
        costs: Proportional to time, `(n_items,)`, not negative.
        order: The shuffled items, `(n_items,)`.
        offsets: Window `w` is `order[offsets[w]:offsets[w + 1]]`, `(n_windows + 1,)`.
        n_ranks: Number of ranks.
        capacity: Largest weight of a share. An item above it has a share of its own.
        weights: Proportional to memory, `(n_items,)`; None for `costs`.

    Returns:
        One step for each window, and more if deferred items need them.

    Raises:
        ValueError: if numbers are negative, not finite or do not fit together.
    """
    costs, order = _check_order(costs, order, n_ranks)
    weights = costs if weights is None else check_costs(weights)
    check_capacity(capacity)
    if weights.shape != costs.shape:
        raise ValueError(f"weights: expected shape {costs.shape}, got {weights.shape}")
    offsets = _check_offsets(offsets, len(costs))
    clipped = np.minimum(weights, capacity)
    bins, n_steps, deferred = cpu.pack_balanced(
        costs, clipped, order, offsets, n_ranks, float(capacity)
    )
    return Plan.from_bins(bins, n_steps * n_ranks, n_ranks, deferred)


def pack_random(order: ArrayLike, offsets: ArrayLike, n_ranks: int) -> Plan:
    """Give each rank the same number of samples of each window, in order.

    This is the order of a sampler without sizes, such as torch's `DistributedSampler`.

    Args:
        order: The shuffled items, `(n_items,)`.
        offsets: Window `w` is `order[offsets[w]:offsets[w + 1]]`, `(n_windows + 1,)`.
        n_ranks: Number of ranks; the first ones have one sample more where it must be.

    Raises:
        ValueError: if the numbers do not fit together.
    """
    order = np.asarray(order, dtype=np.int64)
    _, order = _check_order(np.zeros(len(order)), order, n_ranks)
    offsets = _check_offsets(offsets, len(order))
    steps, places, sizes = _find_places(offsets)
    each, more = np.divmod(sizes, n_ranks)  # the first `more` ranks have one sample more
    ranks = np.where(
        places < more * (each + 1), places // (each + 1), (places - more) // np.maximum(each, 1)
    )
    return _make_plan(order, steps * n_ranks + ranks, len(offsets) - 1, n_ranks)


def pack_pairs(costs: ArrayLike, order: ArrayLike, offsets: ArrayLike, n_ranks: int) -> Plan:
    """Give the ranks in turn the cheapest and the dearest sample that is left of each window.

    The load balance sampler of Y. Zhou et al., FastCHGNet, arXiv:2412.20796, section III, with the
    number of atoms, bonds and angles as the cost.

    Args:
        costs: `(n_items,)`, not negative.
        order: The shuffled items, `(n_items,)`.
        offsets: Window `w` is `order[offsets[w]:offsets[w + 1]]`, `(n_windows + 1,)`.
        n_ranks: Number of ranks.

    Raises:
        ValueError: if numbers are negative, not finite or do not fit together.
    """
    costs, order = _check_order(costs, order, n_ranks)
    offsets = _check_offsets(offsets, len(costs))
    steps, places, sizes = _find_places(offsets)
    rising = order[np.lexsort((costs[order], steps))]
    turns = np.minimum(places, sizes - 1 - places)
    return _make_plan(rising, steps * n_ranks + turns % n_ranks, len(offsets) - 1, n_ranks)


def pack_next_fit(costs: ArrayLike, order: ArrayLike, n_ranks: int, capacity: float) -> Plan:
    """Fill one bin after the other, in order, each until the next sample has no room.

    As `DynamicBatchSampler` of PyTorch Geometric and `MaxAtomDistributedBatchSampler` of fairchem,
    except that samples above the capacity are kept, each in a bin of its own, and that the last
    step is filled up with empty shares instead of repeated ones.

    Args:
        costs: `(n_items,)`, not negative.
        order: The shuffled items, `(n_items,)`.
        n_ranks: Number of ranks.
        capacity: Largest cost of a bin.

    Raises:
        ValueError: if numbers are negative, not finite or do not fit together.
    """
    costs, order = _check_order(costs, order, n_ranks)
    check_capacity(capacity)
    bins, n_bins = cpu.pack_next_fit(costs, order, float(capacity))
    return Plan.from_bins(bins, n_bins, n_ranks)


def pack_mace_bins(costs: ArrayLike, order: ArrayLike, n_ranks: int, capacity: float) -> Plan:
    """Assign samples of falling size to a multiple of `n_ranks` bins, fuller bins first.

    Algorithm 1 of J. Firoz et al., "Optimizing data distribution and kernel performance for
    efficient training of chemistry foundation models", arXiv:2504.10700, section 3.2, in O(n log n
    + rounds * bins). In a round each open bin, the fuller before the emptier, takes the largest
    remaining sample, or is closed if that does not fit. Once an open bin is fuller than a
    closed one, all are opened again. Samples that remain when all bins are closed go to new ones.

    The text leaves three things open. Here the first bins are as few as could hold all samples,
    rounded up; a sample may fill a bin exactly; and bins are a step with those numbered next to
    them, which hold samples of like sizes. The steps come in order of falling size.

    Args:
        costs: The sizes, in the paper numbers of atoms, `(n_items,)`, not negative.
        order: The shuffled items, `(n_items,)`: samples of one size are taken in this order.
        n_ranks: Number of ranks.
        capacity: Largest cost of a bin. A sample above it has a bin of its own.

    Raises:
        ValueError: if numbers are negative, not finite or do not fit together.
    """
    costs, order = _check_order(costs, order, n_ranks)
    check_capacity(capacity)
    falling = order[np.argsort(-costs[order], kind="stable")]
    if capacity == math.inf:
        capacity = max(1.0, float(costs.sum()))
    clipped = np.minimum(costs, capacity)
    bins, n_bins = cpu.fill_rounds(clipped, falling, n_ranks, float(capacity))
    return Plan.from_bins(bins, n_bins, n_ranks)


def _check_order(costs: ArrayLike, order: ArrayLike, n_ranks: int) -> tuple[Costs, Numbers]:
    costs, order = check_costs(costs), np.ascontiguousarray(order, dtype=np.int64)
    if n_ranks < 1:
        raise ValueError(f"n_ranks: expected at least 1, got {n_ranks}")
    if order.shape != costs.shape or not cpu.is_permutation(order):
        raise ValueError(
            f"order: expected a permutation of {len(costs)} items, got shape {order.shape}"
        )
    return costs, order


def _check_offsets(offsets: ArrayLike, n_items: int) -> Numbers:
    offsets = np.asarray(offsets, dtype=np.int64)
    if (
        offsets.ndim != 1
        or offsets[0] != 0
        or offsets[-1] != n_items
        or (np.diff(offsets) < 0).any()
    ):
        raise ValueError(f"offsets: expected numbers that rise from 0 to {n_items}, got {offsets}")
    return offsets


def _find_places(offsets: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Return the window of each place in the order, its place in the window, the window's size."""
    sizes = np.diff(offsets)
    windows = np.repeat(np.arange(len(sizes)), sizes)
    return windows, np.arange(len(windows)) - offsets[windows], sizes[windows]


def _make_plan(order: Numbers, bins: Numbers, n_windows: int, n_ranks: int) -> Plan:
    """Return the plan that puts `order[i]` into `bins[i]`."""
    of_items = np.empty_like(bins)
    of_items[order] = bins
    return Plan.from_bins(of_items, n_windows * n_ranks, n_ranks)
