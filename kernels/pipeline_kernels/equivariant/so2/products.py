"""The matrix products of an SO(2) convolution, tile by tile of edges.

Operands of a tile are made, multiplied and forgotten: neither the gathered nor the rotated features
of all edges are ever stored, and the backward pass makes them again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType

import torch
from torch import Tensor

from pipeline_kernels.equivariant.so2.ends import Ends
from pipeline_kernels.equivariant.so2.layout import Layout
from pipeline_kernels.equivariant.so2.pairs import Pair, flatten, list_pairs, list_products
from pipeline_kernels.equivariant.so2.tiles import Product, cut


@dataclass(frozen=True, eq=False)
class Source:
    """What the operands `x_e` of the products are made of.

    Attributes:
        kernels: module with `lift`, `lower`, `factor_gradient`, `prepare` and `TILE_BYTES`.
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
        """Whether the table itself is the operand."""
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

    def make_sums(self, x: Tensor, pairs: Sequence[Pair]) -> Tensor:
        """Make the room for sums of orders m and -m of a tile, none without pairs."""
        n_rows = (self.layout.n_rows - self.layout.count_degrees(0)) // 2 if pairs else 0
        return x.new_empty(self.tile_size, n_rows, x.shape[2])

    def add_orders(self, sums: Tensor, x: Tensor, span: slice) -> None:
        """Write the sums of a tile, of features by order of all edges or of the tile."""
        if sums.numel():
            part = cut(x, span, self.n_edges)
            self.kernels.add_orders(sums[: len(part)], part, self.layout)

    def make_operand(self) -> Tensor:
        """Return the room for operands, or all of them where the table is the operand."""
        return self.tables[0].to(self.dtype) if self.is_ready else self.make_room()

    def fill(self, operand: Tensor, tile: Sequence[Ends]) -> None:
        """Write the operands of a tile to the room that `make_operand` has made."""
        if self.is_ready:
            return
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


def forward(
    source: Source, weights: Sequence[Tensor], bias: Tensor, n_extra: int
) -> tuple[Tensor, Tensor]:
    """Return the features `(n_edges, n_rows, C_out)` and the scalars `(n_edges, n_extra)`."""
    layout = source.layout
    n_main = len(bias) - n_extra
    y = bias.new_empty(source.n_edges, layout.n_rows, n_main // layout.count_degrees(0))
    extra = bias.new_empty(source.n_edges, n_extra)
    x, first, pairs = source.make_operand(), weights[0], list_pairs(weights, layout)
    sums = source.make_sums(x, pairs)
    before, products = list_products(x, y, sums, weights, pairs)
    (rows, _), *others = _split_rows(x.shape[2], weights, layout)
    x_0 = flatten(x, rows)
    products.append(Product(flatten(y, rows), x_0, first[:, :n_main], bias[:n_main]))
    if n_extra:
        products.append(Product(extra, x_0, first[:, n_main:], bias[n_main:]))
    products += [
        Product(flatten(y, rows), flatten(x, rows), weights[number]) for rows, number in others
    ]
    multiply_sums, multiply = (
        source.kernels.prepare(some, source.n_edges, layout) for some in (before, products)
    )
    for tile in source.cut_tiles(by_row=False):
        span = slice(*tile[0].span)
        source.fill(x, tile)
        source.add_orders(sums, x, span)
        multiply_sums(span)
        multiply(span)
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
    x, pairs = source.make_operand(), list_pairs(weights, source.layout)
    of_x, of_g = (source.make_sums(some, pairs) for some in (x, g))
    rows = _split_rows(sum(source.channels), weights, source.layout)
    parts = [flatten(g, some) for some, _ in rows]
    parts[0] = torch.cat([parts[0], g_extra], 1)
    by_x = source.make_room()
    turned = [W.mT.contiguous() for W in weights]
    for pair in pairs:  # what y_m takes of x_-m is what x_-m takes of y_m
        turned[pair.number] = turned[pair.number][[0, 2, 1]]
    before, maps = list_products(g, by_x, of_g, turned, pairs)
    maps += [
        Product(flatten(by_x, some), part, turned[number])
        for (some, number), part in zip(rows, parts, strict=True)
    ]
    to_add = [
        Product(by_weights[number], flatten(x, some), part, summed=True)
        for (some, number), part in zip(rows, parts, strict=True)
        if by_weights
    ]
    for pair in pairs if by_weights else []:
        to_add += _differentiate_pair(x, g, (of_x, of_g), by_weights, pair)
    add_by_weights, multiply_sums, multiply = (
        source.kernels.prepare(products, source.n_edges, source.layout)
        for products in (to_add, before, maps)
    )
    for tile in source.cut_tiles(by_row=True):
        span = slice(*tile[0].span)
        source.add_orders(of_g, g, span)
        if by_weights:
            source.fill(x, tile)
            source.add_orders(of_x, x, span)
            add_by_weights(span)
        if by_source:
            multiply_sums(span)
            multiply(span)
            part = by_x[: span.stop - span.start]
            source.differentiate(part, tile, by_tables, by_factors)


def _differentiate_pair(
    x: Tensor, g: Tensor, sums: tuple[Tensor, Tensor], by_weights: Sequence[Tensor], pair: Pair
) -> list[Product]:
    """Return the sums over edges by what the three products multiply with."""
    real, of_plus, of_minus = by_weights[pair.number].unbind(0)
    s_x, s_g = (flatten(some, pair.both) for some in sums)
    return [
        Product(real, s_x, s_g, summed=True),
        Product(of_plus, flatten(x, pair.plus), flatten(g, pair.minus), summed=True),
        Product(of_minus, flatten(x, pair.minus), flatten(g, pair.plus), summed=True),
    ]


def _split_rows(
    channels: int, weights: Sequence[Tensor], layout: Layout
) -> list[tuple[slice, int]]:
    """Return rows that are multiplied at once, m and -m or each by itself, and by which weights.

    Those of pairs are left out.
    """
    result = []
    for m, (rows, W) in enumerate(zip(layout.blocks, weights, strict=True)):
        if W.ndim == 3:
            continue
        middle = rows.start + layout.count_degrees(m)
        if (rows.stop - rows.start) * channels == len(W):
            result.append((rows, m))
        else:
            result += [(slice(rows.start, middle), m), (slice(middle, rows.stop), m)]
    return result
