"""Senders and receivers of edges, and groups of edges with the same weights."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from pipeline_kernels.message.segments import Segments


@dataclass(frozen=True, eq=False)
class Graph:
    """The edges of a product whose weights several edges share, as both edges of a pair do.

    Attributes:
        senders: which row of features each edge takes.
        receivers: to which row of the result each edge contributes.
        rows: which row of the weights each edge has.
        sending: `senders`, of the edges in the order of their rows.
    """

    senders: Segments
    receivers: Segments
    rows: Segments
    sending: Segments

    @classmethod
    def of(cls, senders: Segments, receivers: Segments, rows: Segments) -> Self:
        """Make it of its parts.

        Raises:
            ValueError: numbers of edges differ.
        """
        device = senders.index.device
        receivers.check("receivers", senders.n_elements, device)
        rows.check("rows", senders.n_elements, device)
        order = rows.order
        index = senders.index[order] if order.numel() else senders.index
        return cls(senders, receivers, rows, Segments.of(index, senders.n_segments))

    @classmethod
    def unshared(cls, senders: Segments, receivers: Segments) -> Self:
        """Make it of edges that have weights of their own each.

        Raises:
            ValueError: numbers of edges differ.
        """
        n, device = senders.n_elements, senders.index.device
        receivers.check("receivers", n, device)
        steps = torch.arange(n + 1, device=device)
        rows = Segments(steps[:n], steps[:0], steps)
        return cls(senders, receivers, rows, senders)

    def encode(self) -> list[Tensor]:
        """Return the graph as an operator takes it; `decode` is the inverse."""
        parts = self.senders, self.receivers, self.rows, self.sending
        return [x for one in parts for x in (one.index, one.order, one.offsets)]

    @classmethod
    def decode(cls, tensors: Sequence[Tensor]) -> Self:
        """Return the graph from the output of `encode`."""
        a, b, c, d = (Segments(*tensors[i : i + 3]) for i in range(0, 12, 3))
        return cls(a, b, c, d)

    @property
    def ends(self) -> list[Tensor]:
        """Senders and receivers, as `tensor_product` takes them."""
        return self.encode()[:6]
