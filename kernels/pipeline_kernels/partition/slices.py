"""Slices of equal width, and virtual nodes: partitions that need no communication.

"Augmented partitioning" of Xia et al., "Learning the Electronic Hamiltonian of Large Atomic
Structures" (ICML 2025), arXiv:2501.19110, as in the authors' code: a structure is cut into slices
across one axis. The graph of a slice has its own atoms, all edges that they receive, and for the
senders of other slices virtual nodes, which send and do not receive. Nothing is exchanged, so
virtual nodes have their first features: own atoms are exact in a network of one layer. Blocks of
edges from virtual nodes have no part in the loss.

Here slices are one more way to assign atoms, after which ranks may exchange as after any other.
`count_virtual` counts the work of any parts without an exchange in a network of more layers,
as exactly as a single part does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline_kernels.partition import cpu
from pipeline_kernels.partition.coordinates import PlaneCoordinates
from pipeline_kernels.partition.low_nn import find_longest
from pipeline_kernels.partition.metrics import compute_imbalance
from pipeline_kernels.partition.rows import Rows

Numbers = NDArray[np.int64]

_ON_PLANE = 1e-6
"""Atoms that lie below the face of a slice by no more, Å, belong to it, however space is turned."""


def cut_by_slices(atoms: PlaneCoordinates, n_parts: int) -> Numbers:
    """Cut across the longest axis into slices of equal width, from where the axis begins.

    Neither atoms nor edges are balanced. A slice with no atoms in it takes the next one, so that
    every part has some. The paper names the axis; among axes about as long the first is taken.

    Args:
        atoms: The atoms.
        n_parts: Number of slices, at most one per atom.

    Returns:
        The part of each atom, `(n_atoms,)`.
    """
    axis = int(find_longest(atoms.extent[None])[0])
    order = np.argsort(atoms.order_atoms()[axis])
    faces = np.arange(1, n_parts) * (atoms.extent[axis] / n_parts)
    begins = np.searchsorted(atoms.coordinates[order, axis], faces - _ON_PLANE)
    least = np.arange(1, n_parts)
    spare = np.maximum.accumulate(begins - least).clip(0, len(order) - n_parts)
    is_first = np.zeros(len(order), np.int64)
    is_first[spare + least] = 1
    labels = np.empty_like(is_first)
    labels[order] = np.cumsum(is_first)
    return labels


@dataclass(frozen=True, eq=False)
class VirtualMetrics:
    """Work of parts without communication.

    Attributes:
        depth: Layers after which own nodes are exact.
        own: Own nodes of each part, `(n_parts,)`.
        nodes: Own and virtual ones: all within `depth` edges, `(n_parts,)`.
        edges: Edges of each part, with the edges of virtual nodes that a later layer reads,
            `(n_parts,)`.
        n_edges: Edges of the graph.
    """

    depth: int
    own: Numbers
    nodes: Numbers
    edges: Numbers
    n_edges: int

    @property
    def virtual(self) -> Numbers:
        """Virtual nodes of each part, `(n_parts,)`."""
        return self.nodes - self.own

    def summarize(self) -> dict[str, float]:
        """Return means and maxima over the parts, and how often nodes and edges are computed."""
        return {
            "depth": self.depth,
            "virtual_mean": float(self.virtual.mean()),
            "virtual_max": int(self.virtual.max()),
            "times_nodes": float(self.nodes.sum() / self.own.sum()),
            "times_edges": float(self.edges.sum() / self.n_edges) if self.n_edges else 1.0,
            "edge_imbalance": compute_imbalance(self.edges),
        }


def count_virtual(labels: Numbers, rows: Rows, n_parts: int, depth: int) -> VirtualMetrics:
    """Count the work of parts for exact own nodes after some layers without exchange.

    A node is exact after a layer if it and all senders of its edges were exact before. A depth of 1
    is that of the paper's virtual nodes: no edge is computed twice, nodes are. The block of an edge
    to another part needs the sender's last features as well, thus a depth of one more.

    Args:
        labels: Part of each node, `(n_nodes,)`.
        rows: The graph.
        n_parts: Number of parts.
        depth: Number of layers, at least 1.

    Raises:
        ValueError: The depth is less than 1.
    """
    if depth < 1:
        raise ValueError(f"depth: expected at least 1, the number of layers, got {depth}")
    ones = np.ones(len(rows), np.int64)
    bits = cpu.mark_owners(labels, n_parts)
    for _ in range(depth):
        exact, bits = bits, cpu.spread_parts(bits, rows.offsets, rows.senders)
    return VirtualMetrics(
        depth=depth,
        own=np.bincount(labels, minlength=n_parts),
        nodes=cpu.weigh_parts(bits, ones, n_parts),
        edges=cpu.weigh_parts(exact, rows.degrees, n_parts),
        n_edges=len(rows.senders),
    )
