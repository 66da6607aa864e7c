"""Table rows of edges, tile by tile."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from pipeline_kernels.equivariant.so2.layout import Layout


@dataclass(frozen=True, eq=False)
class Ends:
    """The edges of a span, and their rows of a table.

    Attributes:
        index: row of each edge of the graph; none where row `e` belongs to edge `e`.
        order: edges by row, as in `Segments`; empty where edges stand in that order.
        first: place in that order of the first edge of the span in each row; none as `index`.
        last: the place after the last edge of the span in each row; none as `index`.
        span: the first edge, and the one after the last.
    """

    index: Tensor | None
    order: Tensor | None
    first: Tensor | None
    last: Tensor | None
    span: tuple[int, int]

    @classmethod
    def of(cls, lists: Sequence[Tensor], n_edges: int) -> Self:
        """Make the ends of all edges from the three lists of `Segments`, empty ones for none."""
        index, order, offsets = (x.contiguous() for x in lists)
        if len(offsets) == 0:
            return cls(None, None, None, None, (0, n_edges))
        return cls(index, order, offsets[:-1], offsets[1:], (0, n_edges))

    @property
    def picked(self) -> "Tensor | slice":
        """The rows that the edges of the span take."""
        return slice(*self.span) if self.index is None else self.index[slice(*self.span)]

    def cut_tiles(self, size: int, by_row: bool) -> Iterator["Ends"]:
        """Cut the edges into spans of `size` edges.

        Args:
            size: edges of a tile.
            by_row: whether places of the edges in the order of rows are needed.
        """
        first, n_edges = self.first, self.span[1]
        for begin in range(0, n_edges, size):
            span = begin, min(begin + size, n_edges)
            tile = replace(self, span=span)
            if by_row and self.index is not None and first is not None and span != self.span:
                counts = torch.bincount(self.index[slice(*span)], minlength=len(first))
                tile = replace(tile, first=first, last=first + counts)
                first = tile.last
            yield tile


Rows = tuple[Ends, Layout, int]
"""Edges of a span, degrees and orders, and how many of the last channels are turned."""
