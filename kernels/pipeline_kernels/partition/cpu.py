"""The loops, compiled: graphs are compressed rows of senders, one row per receiver."""

import numpy as np
from numpy.typing import NDArray

from pipeline_kernels.jit import njit

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]
Senders = NDArray[np.int32]
Bits = NDArray[np.uint64]


@njit(nogil=True)
def sort_by_receiver(edges: Numbers, n_nodes: int) -> tuple[Numbers, Senders]:
    """Return the senders of each receiver, rising, as offsets and senders.

    Two counting sorts: by sender, then, stably, by receiver.
    """
    by_sender = np.zeros(n_nodes + 1, np.int64)
    by_receiver = np.zeros(n_nodes + 1, np.int64)
    for edge in range(len(edges)):
        by_receiver[edges[edge, 0] + 1] += 1
        by_sender[edges[edge, 1] + 1] += 1
    by_sender, by_receiver = np.cumsum(by_sender), np.cumsum(by_receiver)
    places, receivers = by_sender.copy(), np.empty(len(edges), np.int32)
    for edge in range(len(edges)):
        sender = edges[edge, 1]
        receivers[places[sender]] = edges[edge, 0]
        places[sender] += 1
    places, senders = by_receiver.copy(), np.empty(len(edges), np.int32)
    for sender in range(n_nodes):
        for place in range(by_sender[sender], by_sender[sender + 1]):
            receiver = receivers[place]
            senders[places[receiver]] = sender
            places[receiver] += 1
    return by_receiver, senders


@njit(nogil=True)
def cut(
    weights: Floats, starts: Numbers, parts: Numbers, children: Numbers, first_child: Numbers
) -> Numbers:
    """Cut each section, a range of sorted atoms, into children by weight.

    A cut lies at the atom boundary next to its place on the scale of summed weight, and leaves
    every child at least one atom per part.

    Args:
        weights: of the atoms in their order, `(n_atoms,)`.
        starts: where the sections begin, `(n_sections + 1,)`.
        parts: number of parts that each section will have, `(n_sections,)`.
        children: number of parts of each child, section after section, `(n_children,)`.
        first_child: where the children of each section begin, `(n_sections + 1,)`.

    Returns:
        Where the children begin, `(n_children + 1,)`.
    """
    cuts = np.empty(len(children) + 1, np.int64)
    cuts[-1] = starts[-1]
    for section in range(len(parts)):
        place, end, summed, taken = starts[section], starts[section + 1], 0.0, 0
        total = weights[place:end].sum()
        for child in range(first_child[section], first_child[section + 1]):
            cuts[child] = place
            taken += children[child]
            target = total * taken / parts[section]
            least, most = place + children[child], end - (parts[section] - taken)
            while place < most and (place < least or summed + weights[place] / 2 <= target):
                summed += weights[place]
                place += 1
    return cuts


@njit(nogil=True)
def mark_parts_by_rows(
    labels: Numbers, offsets: Numbers, senders: Senders, n_parts: int
) -> tuple[Bits, int]:
    """Return for each node the parts that receive it or own it, as bits.

    Returns:
        `(n_words, n_nodes)` uint64, where bit `p % 64` of word `p // 64` is part `p`, and the
        number of edges between parts.
    """
    bits, n_cut = np.zeros(((n_parts + 63) // 64, len(labels)), np.uint64), 0
    for node in range(len(labels)):
        part = labels[node]
        word, bit = bits[part // 64], np.uint64(1) << np.uint64(part % 64)
        for place in range(offsets[node], offsets[node + 1]):
            word[senders[place]] |= bit
            n_cut += labels[senders[place]] != part
    return bits, n_cut


@njit(nogil=True)
def count_traffic(labels: Numbers, bits: Bits, n_parts: int) -> Numbers:
    """Count the nodes that each part receives from each other, `(n_parts, n_parts)`."""
    counts = np.zeros((n_parts, n_parts), np.int64)
    for word in range(len(bits)):
        parts_here = min(64, n_parts - 64 * word)
        for node in range(len(labels)):
            left, part, owner = bits[word, node], 64 * word, labels[node]
            for _ in range(parts_here):
                if left & np.uint64(1) and part != owner:
                    counts[part, owner] += 1
                left >>= np.uint64(1)
                part += 1
    return counts
