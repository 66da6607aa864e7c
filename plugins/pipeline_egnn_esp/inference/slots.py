"""Slots in which the two edges of a pair are summed into one block."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline_atoms.domain import Domain
from pipeline_egnn_esp.data.matrices import is_first

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class BlockSlots:
    """Slots for blocks of pairs on one rank.

    Of the two edges of a pair only the block of the first is kept; its slot is its number among
    the first edges of this rank. The other edge adds to the same slot or, if another rank owns the
    first one, to a slot of a message.

    Attributes:
        domain: Atoms and edges of this rank, on the CPU.
        first: Mask of the edges that are the first of their pair, (n_edges,).
        slots: Slot of each edge, (n_edges,) int32: below n_first a slot of this rank, above it
            a row of the messages that it sends, by rank.
        sends: Slots sent to each rank that gets any, ascending.
        receives: Slots received from each rank that sends any, ascending.
        received_slots: Slots to which received blocks are added, (n_received,).
    """

    domain: Domain
    first: NDArray[np.bool_]
    slots: NDArray[np.int32]
    sends: dict[int, int]
    receives: dict[int, int]
    received_slots: Ints

    @property
    def n_first(self) -> int:
        """Number of edges whose block this rank keeps."""
        return int(np.count_nonzero(self.first))

    @property
    def n_sent(self) -> int:
        """Number of slots in messages."""
        return sum(self.sends.values())


def assign_slots(domain: Domain) -> BlockSlots:
    """Give each edge of a rank a slot, without communication."""
    index, n_edges = domain.rows[domain.edge_index.numpy()], domain.n_edges
    first = is_first(index[:, 0], index[:, 1], domain.edge_shift.numpy())
    slots = np.empty(n_edges, dtype=np.int32)
    n_first = int(np.count_nonzero(first))
    slots[first] = np.arange(n_first, dtype=np.int32)
    reverse = domain.reverse_edge.numpy()
    inside = ~first & (reverse < n_edges)
    slots[inside] = slots[reverse[inside]]
    peers = _repeat_ranks(domain.edges.sends)
    sent = domain.edges.send.index.numpy()  # by rank, in the order in which they will arrive
    goes = ~first[sent]
    slots[sent[goes]] = n_first + np.arange(np.count_nonzero(goes), dtype=np.int32)
    boundary = domain.boundary.numpy()
    arriving = boundary[np.argsort(reverse[boundary])]  # the edge whose reverse each row brings
    comes = first[arriving]
    return BlockSlots(
        domain=domain,
        first=first,
        slots=slots,
        sends=_count(peers[goes]),
        receives=_count(peers[comes]),
        received_slots=slots[arriving[comes]].astype(np.int64),
    )


def _repeat_ranks(counts: Mapping[int, int]) -> Ints:
    return np.repeat(np.array([*counts], dtype=np.int64), [*counts.values()])


def _count(ranks: Ints) -> dict[int, int]:
    numbers, counts = np.unique(ranks, return_counts=True)
    return dict(zip(numbers.tolist(), counts.tolist(), strict=True))
