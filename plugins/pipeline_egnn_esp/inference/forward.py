"""Forward pass of the network on the domain of a rank, some edges at a time.

Only the features of edges between two layers and the blocks at the end are kept for all edges;
frames, messages and all else are computed for some receivers at a time. Since each edge updates
only its own features, one pass over the edges ends a layer and begins the next:

    pass 0          first features of edges, then atoms of layer 1
    pass k          edges of layer k, then atoms of layer k + 1
    last pass       edges of the last layer, then all blocks

Between passes ranks exchange the ghost atoms (halo exchange). Results equal those of the whole
module but for rounding.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline_atoms.domain import Domain
from pipeline_core.batch import Batch
from pipeline_egnn_esp.data.baselines import take_edges
from pipeline_egnn_esp.inference.slots import BlockSlots
from pipeline_egnn_esp.model.messages import Edges
from pipeline_egnn_esp.model.network import Network
from pipeline_egnn_esp.model.scaling import ScaledNetwork
from pipeline_kernels.halo import exchange

Ints = NDArray[np.int64]
Module = Network | ScaledNetwork


@dataclass(frozen=True, eq=False)
class PredictedBlocks:
    """Blocks of a rank, in the common layout; padding has arbitrary values.

    Attributes:
        nodes: Blocks of own atoms, (n_own, n_common, n_common).
        edges: Blocks of own edges that are the first of their pair, (n_first, n_common, n_common).
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


def split_edges(domain: Domain, n_edges: int) -> list[Chunk]:
    """Split all edges into chunks of at most `n_edges`, or of one receiver with more edges."""
    receivers, n_own = domain.edge_index[:, 0].numpy(), domain.n_own
    offsets = np.searchsorted(receivers, np.arange(n_own + 1))
    chunks, begin = [], 0
    while begin < n_own:
        end = int(np.searchsorted(offsets, offsets[begin] + n_edges, side="right")) - 1
        end = min(max(end, begin + 1), n_own)
        chunks.append(Chunk(slice(begin, end), slice(int(offsets[begin]), int(offsets[end]))))
        begin = end
    return chunks


@torch.no_grad()
def predict_blocks(module: Module, slots: BlockSlots, n_edges: int) -> PredictedBlocks:
    """Predict the blocks of the domain of a rank; all ranks call it together.

    Args:
        module: On the device where it is to run, with the same weights on all ranks.
        slots: Slots of this rank. The transport of its domain carries tensors of that device.
        n_edges: Edges of a chunk.

    Returns:
        The blocks, on that device, in the unit of the labels.

    Raises:
        ValueError: The network has no basis for an element.
    """
    forward, domain = _Forward(module, slots), slots.domain
    chunks, plan = split_edges(domain, n_edges), domain.atoms.to(forward.device)
    n_layers, n = forward.network.options.layers, forward.network.basis.n_common
    x = forward.embed_atoms()
    e = x.new_empty(domain.n_edges, *x.shape[1:]) if n_layers > 1 else None
    for number in range(n_layers):
        own = x.new_empty(domain.n_own, *x.shape[1:])
        for chunk in chunks:
            own[chunk.rows] = forward.update_atoms(number, x, e, chunk)
        x = exchange(own, plan, domain.transport)
        del own
    nodes = x.new_empty(domain.n_own, n, n)
    edges = x.new_zeros(slots.n_first + slots.n_sent, n, n)
    for chunk in chunks:
        nodes[chunk.rows] = forward.add_blocks(x, e, chunk, edges)
    del e, x
    return PredictedBlocks(nodes, _add_reverse(edges, slots))


def _add_reverse(blocks: Tensor, slots: BlockSlots) -> Tensor:
    """Add the contributions of other ranks to the blocks of this rank."""
    kept = blocks[: slots.n_first]
    received = blocks.new_empty(len(slots.received_slots), *blocks.shape[1:])
    parts = blocks[slots.n_first :].split([*slots.sends.values()])
    arriving = received.split([*slots.receives.values()])
    sent = dict(zip(slots.sends, parts, strict=True))
    slots.domain.transport.start(sent, dict(zip(slots.receives, arriving, strict=True)))()
    return kept.index_add_(0, torch.from_numpy(slots.received_slots).to(blocks.device), received)


@dataclass(frozen=True, eq=False)
class _Gathered:
    """Inputs of a chunk: its edges, and the rows of atoms that they join, receivers first."""

    edges: Edges
    picked: Tensor
    batch: Batch


class _Forward:
    """The passes over the edges of a domain."""

    def __init__(self, module: Module, slots: BlockSlots) -> None:
        self._scaled = module if isinstance(module, ScaledNetwork) else None
        self.network = module.network if isinstance(module, ScaledNetwork) else module
        self._slots, domain = slots, slots.domain
        self._receivers, self._senders = domain.edge_index.numpy().T
        self._shifts, structure, rows = domain.edge_shift.numpy(), domain.structure, domain.rows
        self.device = self.network.length_embedding.weight.device
        numbers = structure.atomic_numbers[rows].astype(np.int64)
        self.network.basis.count_orbitals_per_atom(numbers)  # raises for missing elements
        self._numbers, self._positions, self._cell = (
            torch.from_numpy(array).to(self.device)
            for array in (numbers, structure.positions[rows], structure.cell[None])
        )
        self._elements = self.network.element_index[self._numbers]

    def embed_atoms(self) -> Tensor:
        """Return the first features of all local rows."""
        return self.network.embed(self.network.atom_embedding(self._elements))

    def update_atoms(self, layer: int, x: Tensor, e: Tensor | None, chunk: Chunk) -> Tensor:
        """Finish the edges of the layer before, keep them, and update the receivers."""
        gathered = self._gather(chunk)
        x = x[gathered.picked]
        features = self._update_edges(layer, x, e, chunk, gathered)
        if e is not None:
            e[chunk.edges] = features
        updated: Tensor = self.network.node_blocks[layer](x, features, gathered.edges)
        return updated

    def add_blocks(self, x: Tensor, e: Tensor | None, chunk: Chunk, slots: Tensor) -> Tensor:
        """Finish the edges of the last layer; add their blocks to slots, return blocks of atoms."""
        gathered, heads, n = self._gather(chunk), self.network.heads, chunk.n_receivers
        x = x[gathered.picked]
        features = self._update_edges(self.network.options.layers, x, e, chunk, gathered)
        nodes = heads.predict_node_blocks(x[:n], self._numbers[chunk.rows])
        halves = heads.project_one_way(features).mul_(0.5)
        first = torch.from_numpy(self._slots.first[chunk.edges]).to(self.device)
        if self._scaled is not None:
            own, pairs = self._scaled.compute_baseline(take_edges(gathered.batch, first), n)
            of_nodes, of_edges = self._scaled.compute_sizes(gathered.batch, n)
            nodes = own.to(nodes.dtype) + of_nodes.to(nodes.dtype) * nodes
            halves *= of_edges.to(halves.dtype)
            halves[first] += pairs.to(halves.dtype)
        halves[~first] = halves[~first].mT
        places = torch.from_numpy(self._slots.slots[chunk.edges].astype(np.int64))
        slots.index_add_(0, places.to(self.device), halves)
        return nodes

    def _update_edges(
        self, layer: int, x: Tensor, e: Tensor | None, chunk: Chunk, gathered: _Gathered
    ) -> Tensor:
        """Return the features of edges before a layer, from the atoms before the same layer."""
        if layer == 0 or e is None:
            features = self.network.embed_edges(gathered.batch, gathered.edges)
        else:
            features = e[chunk.edges]
        if layer:
            features = self.network.edge_blocks[layer - 1](x, features, gathered.edges)
        return features

    def _gather(self, chunk: Chunk) -> _Gathered:
        n_receivers = chunk.n_receivers
        senders, places = np.unique(self._senders[chunk.edges], return_inverse=True)
        rows = np.concatenate([np.arange(chunk.rows.start, chunk.rows.stop), senders])
        receiver = self._receivers[chunk.edges].astype(np.int64) - chunk.rows.start
        index = np.stack([receiver, places.astype(np.int64) + n_receivers], axis=1)
        edge_index, picked, edge_shift = (
            torch.from_numpy(array.astype(np.int64)).to(self.device)
            for array in (index, rows, self._shifts[chunk.edges])
        )
        batch = {
            "atomic_numbers": self._numbers[picked],
            "positions": self._positions[picked],
            "cell": self._cell,
            "edge_index": edge_index,
            "edge_shift": edge_shift,
            "edge_sample": torch.zeros(len(edge_index), dtype=torch.int64, device=self.device),
        }
        edges = self.network.make_edges(batch, self._elements[picked], n_receivers)
        return _Gathered(edges, picked, batch)
