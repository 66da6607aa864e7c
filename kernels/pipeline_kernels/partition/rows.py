"""The graph as the partitioners read it, made once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipeline_kernels.partition import cpu
from pipeline_kernels.partition.metrics import PartitionMetrics, check_edges

Numbers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Rows:
    """Edges grouped by the node that owns them: compressed rows.

    Attributes:
        offsets: Receiver `i` owns the edges from `offsets[i]` to `offsets[i + 1]`, `(n_nodes + 1,)`
            int64.
        senders: The sender of each edge, rising within a row, `(n_edges,)` int32.
    """

    offsets: Numbers
    senders: NDArray[np.int32]

    @classmethod
    def of(cls, edges: ArrayLike, n_nodes: int) -> Rows:
        """Group edges; needs 4 bytes per edge, twice that while at work.

        Args:
            edges: Receiver and sender, `(n_edges, 2)`, in any order; repeated edges and self edges
                are kept.
            n_nodes: Number of nodes.

        Raises:
            ValueError: if a node does not exist.
        """
        return cls(*cpu.sort_by_receiver(check_edges(edges, n_nodes), n_nodes))

    def __len__(self) -> int:
        """Number of nodes."""
        return len(self.offsets) - 1

    @property
    def degrees(self) -> Numbers:
        """Edges that each node owns, `(n_nodes,)`."""
        return np.diff(self.offsets)

    @property
    def weights(self) -> NDArray[np.float64]:
        """Weights to balance between parts: edges, or nodes of a graph without edges."""
        degrees = self.degrees.astype(np.float64)
        return degrees if degrees.any() else np.ones(len(self))

    def measure(self, labels: Numbers, n_parts: int) -> PartitionMetrics:
        """Count the communication between the parts of a partition.

        Args:
            labels: Part of each node, `(n_nodes,)` int64; parts may be empty. A repeated edge
                counts as one but is served by one copy of the sender, self edges need none.
            n_parts: Number of parts.
        """
        bits, n_cut = self.touch(labels, n_parts)
        return PartitionMetrics(
            traffic=cpu.count_traffic(labels, bits, n_parts),
            nodes=np.bincount(labels, minlength=n_parts),
            edges=np.bincount(labels, self.degrees, n_parts).astype(np.int64),
            cut_edges=n_cut,
        )

    def touch(self, labels: Numbers, n_parts: int) -> tuple[NDArray[np.uint64], int]:
        """Return the parts that own or receive each node, as bits, and the edges between parts.

        Returns:
            `(n_words, n_nodes)`, where bit `p % 64` of word `p // 64` is part `p`, and a number.
        """
        bits, n_cut = cpu.mark_parts_by_rows(labels, self.offsets, self.senders, n_parts)
        return bits, int(n_cut)
