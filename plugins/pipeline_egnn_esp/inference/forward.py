"""The network on a part of a structure, some edges at a time.

What is kept of all edges are their features between two layers and the blocks at the end; frames,
messages and all else are made for some receivers at a time. As features of edges are updated by
each edge itself, one pass over the edges ends a layer and begins the next:

    pass 0          first features of edges, then atoms of layer 1
    pass k          edges of layer k, then atoms of layer k + 1
    last pass       edges of the last layer, then all blocks

Between passes ranks exchange the atoms of the halo. Results are those of the module as a whole, but
for rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline_core.batch import Batch
from pipeline_core.structure import Structure
from pipeline_egnn_esp.inference.parts import Part
from pipeline_egnn_esp.layers import Edges
from pipeline_egnn_esp.network import Network
from pipeline_egnn_esp.scaling import ScaledNetwork
from pipeline_kernels.halo import Transport, exchange

Ints = NDArray[np.int64]
Module = Network | ScaledNetwork


@dataclass(frozen=True, eq=False)
class Predicted:
    """Blocks of a rank, in the common layout; what is padding may hold anything.

    Attributes:
        nodes: Of own atoms, (n_own, n_common, n_common).
        edges: Of own edges that are the first of their pair, (n_first, n_common, n_common).
    """

    nodes: Tensor
    edges: Tensor


@dataclass(frozen=True)
class Chunk:
    """Edges of consecutive receivers.

    Attributes:
        rows: Own rows of the receivers.
        edges: Their edges.
    """

    rows: slice
    edges: slice

    @property
    def n_receivers(self) -> int:
        """Number of receivers."""
        return int(self.rows.stop - self.rows.start)


def chunks(part: Part, n_edges: int) -> list[Chunk]:
    """Return all edges in pieces of at most so many, more where one receiver has them."""
    offsets = np.searchsorted(part.receivers, np.arange(part.n_own + 1))
    found, begin = [], 0
    while begin < part.n_own:
        end = int(np.searchsorted(offsets, offsets[begin] + n_edges, side="right")) - 1
        end = min(max(end, begin + 1), part.n_own)
        found.append(Chunk(slice(begin, end), slice(int(offsets[begin]), int(offsets[end]))))
        begin = end
    return found


@torch.no_grad()
def predicted(
    module: Module, part: Part, structure: Structure, transport: Transport, n_edges: int
) -> Predicted:
    """Predict the blocks of a part; all ranks call it together.

    Args:
        module: On the device where it is to run, with the same weights on all ranks.
        part: Of this rank.
        structure: All atoms.
        transport: Between the ranks, for tensors of that device.
        n_edges: How many edges are worked on at a time.

    Returns:
        The blocks, on that device, in the unit of the labels.

    Raises:
        ValueError: The network has no basis for an element.
    """
    forward = _Forward(module, part, structure)
    pieces, plan = chunks(part, n_edges), part.plan.to(forward.device)
    n_layers, n = forward.network.options.layers, forward.network.basis.n_common
    x = forward.embedded_atoms()
    e = x.new_empty(part.n_edges, *x.shape[1:]) if n_layers > 1 else None
    for number in range(n_layers):
        own = x.new_empty(part.n_own, *x.shape[1:])
        for piece in pieces:
            own[piece.rows] = forward.atoms(number, x, e, piece)
        x = exchange(own, plan, transport)
        del own
    nodes = x.new_empty(part.n_own, n, n)
    edges = x.new_zeros(part.n_first + sum(part.sends.values()), n, n)
    for piece in pieces:
        nodes[piece.rows] = forward.blocks(x, e, piece, edges)
    del e, x
    return Predicted(nodes, _with_opposites(edges, part, transport))


def _with_opposites(blocks: Tensor, part: Part, transport: Transport) -> Tensor:
    """Add what other ranks have of blocks that are kept here."""
    kept = blocks[: part.n_first]
    received = blocks.new_empty(len(part.received_slots), *blocks.shape[1:])
    sent = dict(zip(part.sends, blocks[part.n_first :].split([*part.sends.values()]), strict=True))
    parts = received.split([*part.receives.values()])
    transport.start(sent, dict(zip(part.receives, parts, strict=True)))()
    return kept.index_add_(0, torch.from_numpy(part.received_slots).to(blocks.device), received)


@dataclass(frozen=True, eq=False)
class _Gathered:
    """What a chunk needs: edges between rows that are picked for them, receivers first."""

    edges: Edges
    picked: Tensor
    batch: Batch


class _Forward:
    """The passes over the edges of a part."""

    def __init__(self, module: Module, part: Part, structure: Structure) -> None:
        self._scaled = module if isinstance(module, ScaledNetwork) else None
        self.network = module.network if isinstance(module, ScaledNetwork) else module
        self._part = part
        self.device = self.network.lengths.weight.device
        numbers = structure.atomic_numbers[part.rows].astype(np.int64)
        self.network.basis.counts(numbers)  # refuses what it lacks
        self._numbers, self._positions, self._cell = (
            torch.from_numpy(array).to(self.device)
            for array in (numbers, structure.positions[part.rows], structure.cell[None])
        )
        self._elements = self.network.places[self._numbers]

    def embedded_atoms(self) -> Tensor:
        """Return the first features of all local rows."""
        return self.network.embedded(self.network.atoms(self._elements))

    def atoms(self, layer: int, x: Tensor, e: Tensor | None, piece: Chunk) -> Tensor:
        """Finish the edges of the layer before, keep them, and update the receivers."""
        found = self._gathered(piece)
        x = x[found.picked]
        features = self._before(layer, x, e, piece, found)
        if e is not None:
            e[piece.edges] = features
        updated: Tensor = self.network.node_blocks[layer](x, features, found.edges)
        return updated

    def blocks(self, x: Tensor, e: Tensor | None, piece: Chunk, slots: Tensor) -> Tensor:
        """Finish the edges of the last layer; add their blocks to slots, return those of atoms."""
        found, heads, n = self._gathered(piece), self.network.heads, piece.n_receivers
        x = x[found.picked]
        features = self._before(self.network.options.layers, x, e, piece, found)
        nodes = heads.node_blocks(x[:n], self._numbers[piece.rows])
        halves = heads.one_way(features).mul_(0.5)
        first = torch.from_numpy(self._part.first[piece.edges]).to(self.device)
        if self._scaled is not None:
            own, pairs = self._scaled.known(found.batch, n)
            of_nodes, of_edges = self._scaled.typical(found.batch, n)
            nodes = own.to(nodes.dtype) + of_nodes.to(nodes.dtype) * nodes
            halves *= of_edges.to(halves.dtype)
            halves[first] += pairs[first].to(halves.dtype)
        halves[~first] = halves[~first].mT
        places = torch.from_numpy(self._part.slots[piece.edges].astype(np.int64))
        slots.index_add_(0, places.to(self.device), halves)
        return nodes

    def _before(
        self, layer: int, x: Tensor, e: Tensor | None, piece: Chunk, found: _Gathered
    ) -> Tensor:
        """Return the features of edges before a layer, the atoms being those before it, too."""
        if layer == 0 or e is None:
            features = self.network.embedded_edges(found.batch, found.edges)
        else:
            features = e[piece.edges]
        if layer:
            features = self.network.edge_blocks[layer - 1](x, features, found.edges)
        return features

    def _gathered(self, piece: Chunk) -> _Gathered:
        part, n_receivers = self._part, piece.n_receivers
        senders, places = np.unique(part.senders[piece.edges], return_inverse=True)
        rows = np.concatenate([np.arange(piece.rows.start, piece.rows.stop), senders])
        receiver = part.receivers[piece.edges].astype(np.int64) - piece.rows.start
        index = np.stack([receiver, places.astype(np.int64) + n_receivers], axis=1)
        edge_index, picked, edge_shift = (
            torch.from_numpy(array.astype(np.int64)).to(self.device)
            for array in (index, rows, part.shifts[piece.edges])
        )
        batch = {
            "atomic_numbers": self._numbers[picked],
            "positions": self._positions[picked],
            "cell": self._cell,
            "edge_index": edge_index,
            "edge_shift": edge_shift,
            "edge_sample": torch.zeros(len(edge_index), dtype=torch.int64, device=self.device),
        }
        edges = self.network.edges(batch, self._elements[picked], n_receivers)
        return _Gathered(edges, picked, batch)
