"""Plan of a halo exchange: rows to send and to receive, made once per graph on each rank."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from pipeline_kernels.message import Segments

_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.uint8)


@dataclass(frozen=True, eq=False)
class HaloPlan:
    """The domain of one rank in a split graph, and the messages of its halo exchange.

    Local rows are `[own | halo]`: row `k < n_own` is node `own[k]`, row `n_own + k` node `halo[k]`.

    Attributes:
        rank: The rank whose plan this is.
        n_parts: Number of parts, one for each rank.
        own: Nodes of this rank, ascending, `(n_own,)`.
        halo: Senders of its edges that other ranks own, grouped by owner, ascending in each group,
            `(n_halo,)`.
        send: Own rows that are sent, grouped by the rank that gets them, in the order of that
            rank's `halo`, as `send.index` `(n_sent,)`; the segments sum the returned gradients.
        sends: Number of rows sent to each rank that gets any, ascending by rank.
        receives: Number of rows received from each rank that sends any, ascending by rank.
    """

    rank: int
    n_parts: int
    own: Tensor
    halo: Tensor
    send: Segments
    sends: Mapping[int, int]
    receives: Mapping[int, int]

    @classmethod
    def of(cls, owners: Tensor, edges: Tensor, rank: int, n_parts: int) -> Self:
        """Make the plan of one rank from the whole graph, without communication.

        Ranks that call this with the same graph get plans that fit each other. Nodes without edges,
        edges given more than once (as for several periodic images), parts without nodes and parts
        that share no edge are all fine.

        Args:
            owners: The rank that owns each node, integers `(n_nodes,)`.
            edges: Receiver and sender of each edge, integers `(n_edges, 2)`.
            rank: The rank whose plan to make.
            n_parts: Number of parts.

        Returns:
            The plan, on the device of `owners`.

        Raises:
            ValueError: if the arguments do not describe a split graph.
        """
        _check(owners, edges, rank, n_parts)
        owners, (receivers, senders) = owners.long(), edges.long().unbind(1)
        mine = owners == rank
        receives_here, sends_here = mine[receivers], mine[senders]
        boundary = _list_numbers(receives_here & ~sends_here)
        outgoing = _list_numbers(~receives_here & sends_here)

        own, halo = _list_numbers(mine), _find_distinct(senders[boundary], len(owners))
        halo = halo[torch.argsort(owners[halo], stable=True)]
        rows = owners.new_full(owners.shape, -1)
        rows[own] = torch.arange(len(own), device=own.device)

        # One pass over a table of marks gives the distinct rows in order, without a sort of edges.
        cells = owners[receivers[outgoing]] * len(own) + rows[senders[outgoing]]
        cells = _find_distinct(cells, n_parts * len(own))
        send = cells % max(len(own), 1)
        return cls(
            rank=rank,
            n_parts=n_parts,
            own=own,
            halo=halo,
            send=Segments.of(send, len(own)),
            sends=_count_by_rank(cells // max(len(own), 1)),
            receives=_count_by_rank(owners[halo]),
        )

    @property
    def n_own(self) -> int:
        """Number of nodes of this rank."""
        return self.own.shape[0]

    @property
    def n_halo(self) -> int:
        """Number of rows that this rank receives."""
        return self.halo.shape[0]

    @property
    def n_sent(self) -> int:
        """Number of rows that this rank sends; a row counts once for each rank that gets it."""
        return self.send.n_elements

    def to(self, device: torch.device | str) -> Self:
        """Return the same plan on another device."""
        names = ("own", "halo", "send")
        return replace(self, **{name: getattr(self, name).to(device) for name in names})


def _list_numbers(mask: Tensor) -> Tensor:
    return mask.nonzero().flatten()


def _find_distinct(values: Tensor, end: int) -> Tensor:
    """Return the distinct ones of integers in `[0, end)`, ascending."""
    seen = torch.zeros(end, dtype=torch.bool, device=values.device)
    seen[values] = True
    return _list_numbers(seen)


def _count_by_rank(ranks: Tensor) -> dict[int, int]:
    numbers, counts = torch.unique_consecutive(ranks, return_counts=True)
    return dict(zip(numbers.tolist(), counts.tolist(), strict=True))


def _check(owners: Tensor, edges: Tensor, rank: int, n_parts: int) -> None:
    if n_parts < 1 or not 0 <= rank < n_parts:
        raise ValueError(
            f"rank, n_parts: expected 0 <= rank < n_parts, got rank {rank} of {n_parts}; "
            "take both from the transport"
        )
    for name, tensor, shape in (
        ("owners", owners, ("n_nodes",)),
        ("edges", edges, ("n_edges", 2)),
    ):
        fits = tensor.ndim == len(shape) and (tensor.ndim == 1 or tensor.shape[1] == 2)
        if tensor.dtype not in _INTEGERS or not fits:
            raise ValueError(
                f"{name}: expected integers of shape ({', '.join(map(str, shape))}), "
                f"got {tensor.dtype} of shape {tuple(tensor.shape)}; "
                "an edge is a row (receiver, sender)"
            )
    if owners.device != edges.device:
        raise ValueError(
            f"edges: expected device {owners.device} of owners, got {edges.device}; "
            "make the plan on one device and move it with .to()"
        )
    for name, tensor, end, cure in (
        ("owners", owners, n_parts, "n_parts must count every part, empty ones too"),
        ("edges", edges, len(owners), "owners must name the part of every node"),
    ):
        if tensor.numel() and not 0 <= int(tensor.min()) <= int(tensor.max()) < end:
            raise ValueError(
                f"{name}: expected numbers from 0 to {end - 1}, "
                f"got {int(tensor.min())} to {int(tensor.max())}; {cure}"
            )
