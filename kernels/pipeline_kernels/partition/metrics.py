"""Costs of a partition: the quantities of figure 5 of the paper, exact."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Numbers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PartitionMetrics:
    """Communication and balance of a partition whose parts own the edges of their receivers.

    Attributes:
        traffic: Nodes that part `p` receives from part `q` in one exchange, `(n_parts, n_parts)`;
            each node once, however many edges need it.
        nodes: Nodes of each part, `(n_parts,)`.
        edges: Edges of each part, `(n_parts,)`.
        cut_edges: Edges whose sender belongs to another part than their receiver.
    """

    traffic: Numbers
    nodes: Numbers
    edges: Numbers
    cut_edges: int

    @property
    def neighbours(self) -> Numbers:
        """Parts from which each part receives, `(n_parts,)`."""
        return np.asarray(np.count_nonzero(self.traffic, axis=1))

    @property
    def received(self) -> Numbers:
        """Nodes that each part receives, `(n_parts,)`."""
        return np.asarray(self.traffic.sum(1))

    @property
    def total_sent(self) -> int:
        """Nodes that all parts send together in one exchange; as many are received."""
        return int(self.traffic.sum())

    @property
    def edge_imbalance(self) -> float:
        """Edges of the largest part over the mean; 1 if there are none."""
        return compute_imbalance(self.edges)

    @property
    def node_imbalance(self) -> float:
        """Nodes of the largest part over the mean."""
        return compute_imbalance(self.nodes)

    def summarize(self) -> dict[str, float]:
        """Return the figures of figure 5 by name, means and maxima over the parts."""
        neighbours, received = self.neighbours, self.received
        return {
            "neighbours_mean": float(neighbours.mean()),
            "neighbours_max": int(neighbours.max()),
            "received_mean": float(received.mean()),
            "received_max": int(received.max()),
            "total_sent": self.total_sent,
            "edge_imbalance": self.edge_imbalance,
            "node_imbalance": self.node_imbalance,
            "cut_edges": self.cut_edges,
        }


def check_edges(edges: ArrayLike, n_nodes: int) -> Numbers:
    """Return the edges as int64 of shape `(n_edges, 2)`; raises ValueError if one is wrong."""
    array = np.asarray(edges)
    array = array.reshape(-1, 2).astype(np.int64) if array.size == 0 else array
    if array.ndim != 2 or array.shape[1] != 2 or array.dtype.kind not in "iu":
        raise ValueError(
            "edges: expected integers of shape (n_edges, 2), receiver and sender, "
            f"got {array.dtype} of shape {array.shape}"
        )
    if len(array) and not 0 <= array.min() <= array.max() < n_nodes:
        raise ValueError(
            f"edges: expected nodes from 0 to {n_nodes - 1}, got {array.min()} to {array.max()}; "
            "number the nodes in the order of the positions"
        )
    return array.astype(np.int64, copy=False)


def compute_imbalance(loads: Numbers) -> float:
    """Return the largest load over the mean; 1 if there are none."""
    return float(loads.max() / loads.mean()) if loads.any() else 1.0
