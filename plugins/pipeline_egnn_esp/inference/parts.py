"""The part of a structure that a rank works on, made from the edges of its own atoms alone.

Each edge has its opposite in the graph, so that the edges of own atoms say all: which senders
belong to other ranks, which own atoms other ranks need, and which edges have their opposite there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from pipeline_core.distributed.ranks import Ranks
from pipeline_core.neighbours import NeighbourSearch
from pipeline_core.structure import Structure
from pipeline_egnn_esp.matrices import BlockIndex, is_first
from pipeline_egnn_esp.partition_options import Method
from pipeline_kernels.halo import HaloPlan
from pipeline_kernels.partition import Link, partition

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Part:
    """Atoms and edges of one rank.

    Local rows of atoms are own ones, then the halo. Of the two edges of a pair one block is kept,
    that of the first; its slot is its number among the first edges of this rank. The other edge
    adds to the same slot, or, if the first one is on another rank, to a slot of a message.

    Attributes:
        rows: Number of each local row in the structure, (n_own + n_halo,).
        receivers: Local row of each edge's receiver, rising, (n_edges,) int32.
        senders: Local row of each edge's sender, (n_edges,) int32.
        shifts: (n_edges, 3) int16.
        first: Which edges are the first of their pair, (n_edges,).
        slots: Slot of each edge, (n_edges,) int32: below n_first one of this rank's, from there on
            a row of the messages that it sends, by rank.
        sends: Slots sent to each rank that gets any, ascending.
        receives: Slots received from each rank that sends any, ascending.
        received_slots: Where the received ones are added, (n_received,).
        plan: Of the atoms, without edges.
    """

    rows: Ints
    receivers: NDArray[np.int32]
    senders: NDArray[np.int32]
    shifts: NDArray[np.int16]
    first: NDArray[np.bool_]
    slots: NDArray[np.int32]
    sends: dict[int, int]
    receives: dict[int, int]
    received_slots: Ints
    plan: HaloPlan

    @property
    def n_own(self) -> int:
        """Own atoms."""
        return self.plan.n_own

    @property
    def n_first(self) -> int:
        """Edges whose block this rank keeps."""
        return int(np.count_nonzero(self.first))

    @property
    def n_edges(self) -> int:
        """Edges of own atoms."""
        return len(self.receivers)


def shared(structure: Structure, cutoff: float, method: Method, ranks: Ranks, link: Link) -> Ints:
    """Return the rank that owns each atom, (n_atoms,); rank 0 decides.

    Raises:
        ValueError: There are more ranks than atoms.
    """
    n_atoms = len(structure.positions)
    if ranks.size > n_atoms:
        raise ValueError(
            f"{n_atoms} atoms cannot be shared between {ranks.size} ranks; start at most {n_atoms}"
        )
    labels = np.zeros(n_atoms, dtype=np.int64)
    if ranks.is_rank_zero and ranks.size > 1:
        atoms = np.arange(n_atoms)
        found = NeighbourSearch(structure, cutoff, atoms).find_edges(atoms)
        edges = np.concatenate([index.astype(np.int32) for index, _ in found])
        places = structure.positions, structure.cell, structure.pbc
        labels = partition(*places, edges, ranks.size, cutoff, method, link)
    return ranks.broadcast(labels)


def part_of(structure: Structure, cutoff: float, labels: Ints, rank: int, n_ranks: int) -> Part:
    """Return the part of a rank, without communication.

    Args:
        structure: All atoms; its positions within one cell.
        cutoff: Å
        labels: The rank that owns each atom, (n_atoms,).
        rank: The rank.
        n_ranks: Number of ranks.
    """
    own = np.flatnonzero(labels == rank)
    index, shifts = _edges(structure, cutoff, own)
    plan = _plan(labels, index, rank, n_ranks)
    rows = torch.cat([plan.own, plan.halo]).numpy()
    local = np.full(len(labels), -1, dtype=np.int32)
    local[rows] = np.arange(len(rows), dtype=np.int32)
    atoms, images = index.astype(np.int64), shifts.astype(np.int64)
    first = is_first(atoms[:, 0], atoms[:, 1], images)
    slots, sends = _slots(atoms, images, first, labels, rank)
    receives, received = _received(atoms, images, first, labels, rank)
    return Part(
        rows=rows,
        receivers=local[index[:, 0]],
        senders=local[index[:, 1]],
        shifts=shifts,
        first=first,
        slots=slots,
        sends=sends,
        receives=receives,
        received_slots=received,
        plan=plan,
    )


def _edges(
    structure: Structure, cutoff: float, own: Ints
) -> tuple[NDArray[np.int32], NDArray[np.int16]]:
    found = NeighbourSearch(structure, cutoff, own).find_edges(own)
    pairs = [(index.astype(np.int32), shift.astype(np.int16)) for index, shift in found]
    if not pairs:
        return np.zeros((0, 2), dtype=np.int32), np.zeros((0, 3), dtype=np.int16)
    index, shift = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    return index, shift


def _plan(labels: Ints, index: NDArray[np.int32], rank: int, n_ranks: int) -> HaloPlan:
    """Make the plan of own edges and the opposites of those that cross, which other ranks own."""
    crossing = labels[index[:, 1]] != rank
    edges = np.concatenate([index, index[crossing][:, ::-1]])
    plan = HaloPlan.of(torch.from_numpy(labels), torch.from_numpy(edges), rank, n_ranks)
    return replace(plan, edges=plan.edges[:0], edge_ids=plan.edge_ids[:0])


def _slots(
    atoms: Ints, images: Ints, first: NDArray[np.bool_], labels: Ints, rank: int
) -> tuple[NDArray[np.int32], dict[int, int]]:
    n_first = int(np.count_nonzero(first))
    slots = np.empty(len(atoms), dtype=np.int32)
    slots[first] = np.arange(n_first, dtype=np.int32)
    owners = labels[atoms[:, 1]]
    inside = np.flatnonzero(~first & (owners == rank))
    place = BlockIndex(atoms[first], images[first]).find(atoms[inside, ::-1], -images[inside])
    assert (place >= 0).all(), "an edge without its opposite"
    slots[inside] = place
    outside = np.flatnonzero(~first & (owners != rank))
    outside = outside[np.argsort(owners[outside], kind="stable")]
    slots[outside] = n_first + np.arange(len(outside), dtype=np.int32)
    return slots, _counts(owners[outside])


def _received(
    atoms: Ints, images: Ints, first: NDArray[np.bool_], labels: Ints, rank: int
) -> tuple[dict[int, int], Ints]:
    """Return how many blocks come from each rank, and the slots in the order of their arrival.

    The sender has its edges sorted by receiver, sender and shift.
    """
    owners = labels[atoms[first, 1]]
    crossing = np.flatnonzero(owners != rank)
    (i, j), shift = atoms[first][crossing].T, -images[first][crossing]
    order = np.lexsort([shift[:, 2], shift[:, 1], shift[:, 0], i, j, owners[crossing]])
    return _counts(owners[crossing][order]), crossing[order]


def _counts(ranks: Ints) -> dict[int, int]:
    numbers, counts = np.unique(ranks, return_counts=True)
    return dict(zip(numbers.tolist(), counts.tolist(), strict=True))
