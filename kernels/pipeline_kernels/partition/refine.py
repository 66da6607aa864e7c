"""Boundaries moved atom by atom, so that less is sent."""

import numpy as np
from numpy.typing import NDArray

from pipeline_kernels.partition import refine_cpu
from pipeline_kernels.partition.rows import Rows

Numbers = NDArray[np.int64]

SWEEPS = 60
FIRST_THRESHOLD = 1 / 60  # of the mean degree: 10 nodes for 600 edges per atom


def refine(
    labels: Numbers, rows: Rows, n_parts: int, message: float, balance: float = 1.01
) -> Numbers:
    """Give boundary nodes to the other part that owns most of their receivers.

    The cost is the nodes sent by all parts plus `message` for each pair of parts that talk.
    Threshold accepting, G. Dueck and T. Scheuer, J. Comput. Phys. 90, 161 (1990): a node moves if
    the cost rises by less than a threshold, which falls to zero over the first four fifths of the
    sweeps. The change is counted, not estimated. No part comes to cost more than the dearest did,
    and a part with one node keeps it.

    Needs `4 * n_nodes * n_parts` bytes. Deterministic.

    Args:
        labels: The partition to begin with, `(n_nodes,)`.
        rows: The graph.
        n_parts: Number of parts.
        message: Nodes that could be sent in the time that one more message takes.
        balance: Largest edge imbalance that moves may lead to, if it is not larger already.

    Returns:
        Another partition, or the same one if none is cheaper, `(n_nodes,)`.
    """
    if not len(rows.senders) or n_parts == 1:
        return labels
    weights, refined = rows.weights, labels.copy()
    loads = np.bincount(labels, weights, n_parts).astype(np.float64)
    falling = np.maximum(0.0, 1 - 1.25 * np.arange(SWEEPS) / SWEEPS)
    saved = refine_cpu.refine(
        refined,
        rows.offsets,
        rows.senders,
        weights,
        loads,
        float(message),
        max(balance * loads.mean(), loads.max()),
        FIRST_THRESHOLD * weights.mean() * falling,
    )
    return refined if saved > 0 else labels
