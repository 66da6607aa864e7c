"""Local search on the boundaries of a partition, compiled."""

import numpy as np
from numpy.typing import NDArray

from pipeline_kernels.jit import njit

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]
Senders = NDArray[np.int32]
Contacts = NDArray[np.int32]


@njit(nogil=True)
def refine(
    labels: Numbers,
    offsets: Numbers,
    senders: Senders,
    weights: Floats,
    loads: Floats,
    message: float,
    heaviest: float,
    thresholds: Floats,
) -> float:
    """Implement `refine.refine`, in place; returns by how much the cost fell.

    Args:
        labels: the partition, `(n_nodes,)`.
        offsets: where the rows of senders begin, `(n_nodes + 1,)`.
        senders: `(n_edges,)`.
        weights: of the nodes, `(n_nodes,)`.
        loads: weight of each part, `(n_parts,)`; kept up to date.
        message: cost of a pair of parts that talk; a node costs 1.
        heaviest: weight above which no part may grow.
        thresholds: rise in cost below which each sweep accepts a move, `(n_sweeps,)`.
    """
    n_parts = len(loads)
    contacts = _count_contacts(labels, offsets, senders, n_parts)
    traffic = _count_traffic(labels, contacts, n_parts)
    costs = np.zeros(n_parts)
    for part in range(n_parts):
        costs[part] = traffic[part].sum() + message * np.count_nonzero(traffic[part])
    largest = costs.max() + 0.5  # a node counts 1: room for rounding
    sizes, saved = np.bincount(labels, minlength=n_parts), 0.0
    for threshold in thresholds:
        for node in range(len(labels)):
            source = labels[node]
            row = senders[offsets[node] : offsets[node + 1]]
            if sizes[source] == 1 or not _is_last_contact(row, source, labels, contacts):
                continue
            target = _find_nearest(contacts[node], source, loads, heaviest - weights[node])
            if target < 0:
                continue
            rise = _move(row, node, target, labels, contacts, traffic, costs, message)
            if rise >= threshold or costs.max() > largest:
                _move(row, node, source, labels, contacts, traffic, costs, message)
                continue
            saved -= rise
            loads[source] -= weights[node]
            loads[target] += weights[node]
            sizes[source] -= 1
            sizes[target] += 1
    return saved


@njit(nogil=True)
def _count_contacts(labels: Numbers, offsets: Numbers, senders: Senders, n_parts: int) -> Contacts:
    """Count the receivers of each node in each part, `(n_nodes, n_parts)`."""
    contacts = np.zeros((len(labels), n_parts), np.int32)
    for node in range(len(labels)):
        for place in range(offsets[node], offsets[node + 1]):
            contacts[senders[place], labels[node]] += 1
    return contacts


@njit(nogil=True)
def _count_traffic(labels: Numbers, contacts: Contacts, n_parts: int) -> Numbers:
    counts = np.zeros((n_parts, n_parts), np.int64)
    for node in range(len(labels)):
        for part in range(n_parts):
            if contacts[node, part] and part != labels[node]:
                counts[part, labels[node]] += 1
    return counts


@njit(nogil=True)
def _is_last_contact(row: Senders, part: int, labels: Numbers, contacts: Contacts) -> bool:
    """Test that `part` would receive less without the receiver of this row."""
    for sender in row:  # noqa: SIM110 - numba has no generators that stop early
        if contacts[sender, part] == 1 and labels[sender] != part:
            return True
    return False


@njit(nogil=True)
def _find_nearest(contacts: Contacts, source: int, loads: Floats, room_above: float) -> int:
    """Return the part but `source` that holds most receivers of a node; -1 if none has room."""
    nearest, most = -1, 0
    for part in range(len(loads)):
        if contacts[part] > most and part != source and loads[part] <= room_above:
            nearest, most = part, contacts[part]
    return nearest


@njit(nogil=True)
def _move(
    row: Senders,
    node: int,
    target: int,
    labels: Numbers,
    contacts: Contacts,
    traffic: Numbers,
    costs: Floats,
    message: float,
) -> float:
    """Give a node to another part; return by how much the cost rises."""
    source, rise = labels[node], 0.0
    for part in range(len(costs)):
        if contacts[node, part]:
            if part != source:
                rise += _receive(traffic, costs, message, part, source, -1)
            if part != target:
                rise += _receive(traffic, costs, message, part, target, 1)
    labels[node] = target
    for sender in row:
        owner = labels[sender]
        contacts[sender, source] -= 1
        if not contacts[sender, source] and owner != source:
            rise += _receive(traffic, costs, message, source, owner, -1)
        contacts[sender, target] += 1
        if contacts[sender, target] == 1 and owner != target:
            rise += _receive(traffic, costs, message, target, owner, 1)
    return rise


@njit(nogil=True)
def _receive(
    traffic: Numbers, costs: Floats, message: float, part: int, owner: int, n_nodes: int
) -> float:
    """Count nodes that a part receives from another; return by how much the cost rises."""
    was = traffic[part, owner] > 0
    traffic[part, owner] += n_nodes
    rise = float(n_nodes + message * ((traffic[part, owner] > 0) - was))
    costs[part] += rise
    return rise
