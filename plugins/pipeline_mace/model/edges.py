"""Senders and receivers of edges, and pairs of edges with equal distance."""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from pipeline_core.batch import Batch
from pipeline_kernels.equivariant.mixed_product import Graph
from pipeline_kernels.message import Segments

FIELDS: Final = ("atomic_numbers", "atom_sample", "edge_index", "edge_shift")
"""Fields of a batch from which a plan is made."""


@dataclass(frozen=True, eq=False)
class EdgePlan:
    """The edges of a batch, and the rows that are calculated once for both edges of a pair.

    Attributes:
        graph: The edges; rows of their weights are pairs, or single edges on a GPU, whose kernels
            take weights of each edge.
        distinct: An edge of each row, `(n_rows,)`; None where each edge has its own row.
    """

    graph: Graph
    distinct: Tensor | None

    def select(self, x: Tensor) -> Tensor:
        """Select from values of all edges (n_edges, ...) those of one edge of each row."""
        return x if self.distinct is None else x.index_select(0, self.distinct)

    def expand(self, x: Tensor) -> Tensor:
        """Expand values of rows (n_rows, ...) to all edges."""
        return x if self.distinct is None else x.index_select(0, self.graph.rows.index)


def plan_edges(batch: Batch) -> EdgePlan:
    """Plan the edges of a batch; in a domain only own atoms receive."""
    receiver, sender = batch["edge_index"].unbind(1)
    n_atoms, n_own = len(batch["atomic_numbers"]), len(batch["atom_sample"])
    senders, receivers = Segments.of(sender, n_atoms), Segments.of(receiver, n_own)
    if receiver.device.type != "cpu":
        return EdgePlan(Graph.unshared(senders, receivers), None)
    pair = find_pairs(batch["edge_index"], batch["edge_shift"], n_atoms)
    n_pairs = int(pair.max()) + 1 if len(pair) else 0
    rows = Segments.of(pair, n_pairs)
    order = rows.order if rows.order.numel() else torch.arange(len(pair))
    return EdgePlan(Graph.of(senders, receivers, rows), order[rows.offsets[:-1]])


def find_pairs(edge_index: Tensor, edge_shift: Tensor, n_atoms: int) -> Tensor:
    """Number the pairs of atoms and images that edges connect.

    Args:
        edge_index: Receiver and sender of each edge, (n_edges, 2).
        edge_shift: Cells from the receiver's to the sender's, (n_edges, 3).
        n_atoms: Number of atoms.

    Returns:
        The pair of each edge (n_edges,), ascending with its lower atom: one for an edge and its
        reverse, one for an edge alone.
    """
    receiver, sender = edge_index.unbind(1)
    n_digits = 1 + 2 * int(edge_shift.abs().max()) if len(edge_shift) else 1
    x, y, z = edge_shift.long().unbind(1)
    cell = (x * n_digits + y) * n_digits + z  # negative for the reverse edge
    is_turned = (receiver > sender) | ((receiver == sender) & (cell < 0))
    low, high = torch.minimum(receiver, sender), torch.maximum(receiver, sender)
    cells = n_digits**3
    if n_atoms**2 * cells >= 2**63:
        return torch.arange(len(edge_index))  # numbers too large; each edge is its own pair
    key = (low * n_atoms + high) * cells + torch.where(is_turned, -cell, cell)
    pairs: Tensor = torch.unique(key, return_inverse=True)[1]
    return pairs
