"""Operands of the products of a convolution: features of edges, scaled and rotated."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType

import torch
from torch import Tensor

from pipeline_kernels.equivariant.so2.ends import Ends
from pipeline_kernels.equivariant.so2.layout import Layout


@dataclass(frozen=True, eq=False)
class Source:
    """Source of the operands `x_e` of the products.

    Attributes:
        kernels: module with `lift`, `lower`, `factor_gradient` and `TILE_BYTES`.
        tables: features whose rows are rotated to the frames, side by side; or without `frames`
            one table, in the frames already.
        ends: rows that the edges take of each table.
        frames: Wigner matrices of the edges, or none.
        factors: for each degree and channel, or none.
        layout: degrees and orders.
        dtype: of the products.
        turned: how many of the last channels of each table are turned by a quarter.
    """

    kernels: ModuleType
    tables: Sequence[Tensor]
    ends: Sequence[Ends]
    frames: Tensor | None
    factors: Tensor | None
    layout: Layout
    dtype: torch.dtype
    turned: Sequence[int]

    @property
    def channels(self) -> list[int]:
        """Number of channels of each table."""
        return [table.shape[2] for table in self.tables]

    @property
    def is_ready(self) -> bool:
        """True where the table itself is the operand."""
        return self.frames is None and self.factors is None

    @property
    def n_edges(self) -> int:
        """Number of edges."""
        return self.ends[0].span[1]

    @cached_property
    def tile_size(self) -> int:
        """Edges of a tile."""
        x = self.tables[0]
        n_bytes = self.layout.n_rows * sum(self.channels) * x.element_size()
        size: int = self.kernels.TILE_BYTES // max(1, n_bytes)
        return max(1, min(size, self.n_edges))

    def cut_tiles(self, by_row: bool) -> Iterator[tuple[Ends, ...]]:
        """Yield the ends of each table for one tile after the other."""
        return zip(*(ends.cut_tiles(self.tile_size, by_row) for ends in self.ends), strict=True)

    def make_room(self) -> Tensor:
        """Make the room for the operands of a tile, `(tile_size, n_rows, C)`."""
        shape = self.tile_size, self.layout.n_rows, sum(self.channels)
        return self.tables[0].new_empty(shape, dtype=self.dtype)

    def make_sums(self, x: Tensor) -> Tensor:
        """Make the room for sums of orders m and -m of features of a tile."""
        n_rows = (self.layout.n_rows - self.layout.count_degrees(0)) // 2
        return x.new_empty(self.tile_size, n_rows, x.shape[2])

    def make_operand(self) -> Tensor:
        """Return the room for operands, or all of them where the table is the operand."""
        return self.tables[0].to(self.dtype) if self.is_ready else self.make_room()

    def fill(self, operand: Tensor, tile: Sequence[Ends]) -> None:
        """Write the operands of a tile to the room that `make_operand` has made."""
        span = slice(*tile[0].span)
        room = operand[: span.stop - span.start]
        out = room if room.dtype == self.tables[0].dtype else room.to(self.tables[0].dtype)
        if self.frames is None:
            self._scale(self.tables[0][span], span, out)
        else:
            self._rotate(tile, out)
        if out is not room:
            room.copy_(out)

    def _rotate(self, tile: Sequence[Ends], out: Tensor) -> None:
        first = 0
        for x, ends, turned in zip(self.tables, tile, self.turned, strict=True):
            part = slice(first, first + x.shape[2])
            f = None if self.factors is None else self.factors[..., part]
            self.kernels.lift(out[..., part], x, self.frames, f, ends, self.layout, turned)
            first = part.stop

    def differentiate(
        self, g: Tensor, tile: Sequence[Ends], by_tables: Sequence[Tensor], by_factors: Tensor
    ) -> None:
        """Add the gradients of `sum g x` of a tile; empty results are not wanted."""
        g = g.to(self.tables[0].dtype)
        if self.frames is None:
            self._differentiate_scale(g, slice(*tile[0].span), by_tables[0], by_factors)
            return
        first = 0
        for x, by_x, *of_table in zip(self.tables, by_tables, tile, self.turned, strict=True):
            ends, turned = of_table
            part = slice(first, first + x.shape[2])
            f = None if self.factors is None else self.factors[..., part]
            how = ends, self.layout, turned
            if by_x.numel():
                self.kernels.lower(by_x, g[..., part], self.frames, f, *how)
            if by_factors.numel():
                self.kernels.factor_gradient(
                    by_factors[..., part], g[..., part], x, self.frames, *how
                )
            first = part.stop

    def _scale(self, x: Tensor, span: slice, out: Tensor) -> None:
        assert self.factors is not None
        f = self.factors[span]
        for rows, degrees in self._split_orders(f):
            torch.mul(x[:, rows], f[:, degrees], out=out[:, rows])

    def _differentiate_scale(self, g: Tensor, span: slice, by_x: Tensor, by_f: Tensor) -> None:
        f = self.factors
        if by_x.numel() and f is None:
            by_x[span] = g
        elif by_x.numel():
            assert f is not None
            for rows, degrees in self._split_orders(f):
                torch.mul(g[:, rows], f[span, degrees], out=by_x[span, rows])
        if by_f.numel():
            x = self.tables[0][span]
            if by_f.shape[1] == 1:
                torch.sum(g * x, 1, keepdim=True, out=by_f[span])
                return
            assert f is not None
            for rows, degrees in self._split_orders(f):
                by_f[span, degrees].addcmul_(g[:, rows], x[:, rows])

    def _split_orders(self, factors: Tensor) -> Iterator[tuple[slice, slice]]:
        """Yield the rows of each order, and their degrees, which follow one another."""
        for m, rows in enumerate(self.layout.blocks):
            degrees = slice(None) if factors.shape[1] == 1 else slice(m, None)
            n = self.layout.count_degrees(m)
            for first in range(rows.start, rows.stop, n):
                yield slice(first, first + n), degrees
