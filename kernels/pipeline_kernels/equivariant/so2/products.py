"""The matrix products of an SO(2) convolution, left to the BLAS, tile by tile of edges.

Operands of a tile are made, multiplied and forgotten: neither the gathered nor the rotated features
of all edges are ever stored, and the backward pass makes them again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType

import torch
from torch import Tensor

from pipeline_kernels.equivariant.so2.ends import Ends
from pipeline_kernels.equivariant.so2.layout import Layout


@dataclass(frozen=True, eq=False)
class Source:
    """What the operands `x_e` of the products are made of.

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

    def cut_tiles(self, by_row: bool) -> Iterator[tuple[Ends, ...]]:
        """Yield the ends of each table for one tile after the other."""
        x, n_edges = self.tables[0], self.ends[0].span[1]
        n_bytes = self.layout.n_rows * sum(self.channels) * x.element_size()
        whole = self.frames is None and self.factors is None
        size = max(1, n_edges if whole else self.kernels.TILE_BYTES // max(1, n_bytes))
        return zip(*(ends.cut_tiles(size, by_row) for ends in self.ends), strict=True)

    def make_operand(self, tile: Sequence[Ends]) -> Tensor:
        """Make the operands of a tile, `(n, n_rows, C)`."""
        begin, end = tile[0].span
        if self.frames is None:
            return self._scale(self.tables[0][begin:end], slice(begin, end)).to(self.dtype)
        shape = end - begin, self.layout.n_rows, sum(self.channels)
        operand, first = self.tables[0].new_empty(shape), 0
        for x, ends, turned in zip(self.tables, tile, self.turned, strict=True):
            part = slice(first, first + x.shape[2])
            f = None if self.factors is None else self.factors[..., part]
            self.kernels.lift(operand[..., part], x, self.frames, f, ends, self.layout, turned)
            first = part.stop
        return operand.to(self.dtype)

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

    def _scale(self, x: Tensor, span: slice) -> Tensor:
        if self.factors is None:
            return x
        out, f = torch.empty_like(x), self.factors[span]
        for rows, degrees in self._split_orders(f):
            torch.mul(x[:, rows], f[:, degrees], out=out[:, rows])
        return out

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


def forward(
    source: Source, weights: Sequence[Tensor], bias: Tensor, n_extra: int
) -> tuple[Tensor, Tensor]:
    """Return the features `(n_edges, n_rows, C_out)` and the scalars `(n_edges, n_extra)`."""
    layout, n_edges = source.layout, source.ends[0].span[1]
    n_main = len(bias) - n_extra
    y = bias.new_empty(n_edges, layout.n_rows, n_main // layout.count_degrees(0))
    extra = bias.new_empty(n_edges, n_extra)
    for tile in source.cut_tiles(by_row=False):
        x, span = source.make_operand(tile), slice(*tile[0].span)
        x_0, y_0 = _flatten(x, layout.blocks[0]), _flatten(y[span], layout.blocks[0])
        torch.addmm(bias[:n_main], x_0, weights[0][:, :n_main], out=y_0)
        if n_extra:
            torch.addmm(bias[n_main:], x_0, weights[0][:, n_main:], out=extra[span])
        for rows, number in _split_rows(x.shape[2], weights, layout)[1:]:
            torch.mm(_flatten(x, rows), weights[number], out=_flatten(y[span], rows))
    return y, extra


def backward(
    source: Source,
    weights: Sequence[Tensor],
    g: Tensor,
    g_extra: Tensor,
    results: tuple[Sequence[Tensor], Tensor, Sequence[Tensor]],
) -> None:
    """Add the gradients of `sum g y + sum g_extra extra` by tables, factors and weights.

    Args:
        source: of the operands.
        weights: as in `forward`.
        g: `(n_edges, n_rows, C_out)`.
        g_extra: `(n_edges, n_extra)`.
        results: tensors of zeros to add to; empty ones are not wanted.
    """
    by_tables, by_factors, by_weights = results
    by_source = any(x.numel() for x in (*by_tables, by_factors))
    rows = _split_rows(sum(source.channels), weights, source.layout)
    for tile in source.cut_tiles(by_row=True):
        span = slice(*tile[0].span)
        parts = [_flatten(g[span], some) for some, _ in rows]
        parts[0] = torch.cat([parts[0], g_extra[span]], 1)
        if by_weights:
            _add_by_weights(by_weights, source.make_operand(tile), parts, rows)
        if by_source:
            by_x = parts[0].new_empty(len(parts[0]), source.layout.n_rows, sum(source.channels))
            for (some, number), part in zip(rows, parts, strict=True):
                torch.mm(part, weights[number].mT, out=_flatten(by_x, some))
            source.differentiate(by_x, tile, by_tables, by_factors)


def _add_by_weights(
    by_weights: Sequence[Tensor], x: Tensor, parts: Sequence[Tensor], rows: list[tuple[slice, int]]
) -> None:
    for (some, number), part in zip(rows, parts, strict=True):
        by_weights[number].add_(_flatten(x, some).mT @ part)


def _split_rows(
    channels: int, weights: Sequence[Tensor], layout: Layout
) -> list[tuple[slice, int]]:
    """Return rows that are multiplied at once, m and -m or each by itself, and by which weights."""
    result = []
    for m, (rows, W) in enumerate(zip(layout.blocks, weights, strict=True)):
        middle = rows.start + layout.count_degrees(m)
        if (rows.stop - rows.start) * channels == len(W):
            result.append((rows, m))
        else:
            result += [(slice(rows.start, middle), m), (slice(middle, rows.stop), m)]
    return result


def _flatten(x: Tensor, rows: slice) -> Tensor:
    """View rows of each edge as one row of a matrix."""
    part = x[:, rows]
    return part.view(len(x), part.shape[1] * part.shape[2])
