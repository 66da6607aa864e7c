"""Passes of a convolution over its edges: products of matrices, one tile of edges after the other.

Operands of a tile are made, multiplied and forgotten: neither the gathered nor the rotated features
of all edges are ever stored, and the backward pass makes them again.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pipeline_kernels.equivariant.so2.layout import Layout
from pipeline_kernels.equivariant.so2.operands import Source


@dataclass(frozen=True, eq=False)
class Product:
    """Matrix product of each tile: `out = start + a b`, or `out += a^T b` if summed.

    Rows of `a`, and of `out` or `b`, belong to edges: to all of them, or to a tile. The
    latter are a buffer for the current tile.

    Attributes:
        out: the result; if summed, one of each group of tiles, `(n_groups, rows, columns)`.
        a: the left operand.
        b: the right operand.
        start: the row that the sums of each edge start from, for all edges or for a tile.
        summed: whether the sum is over edges.
    """

    out: Tensor
    a: Tensor
    b: Tensor
    start: Tensor | None = None
    summed: bool = False


@dataclass(frozen=True, eq=False)
class Pass:
    """Steps of each tile, in this order.

    Attributes:
        source: of the operands.
        operand: buffer for the operands of a tile; none if not needed, or there already.
        sums: features by order, and room for the sums of their orders m and -m.
        products: in turn.
        gradient: room for the gradient by the operands of a tile; none if it is not wanted.
        by_tables: where gradients by features are added to; empty ones are not wanted.
        by_factors: likewise.
    """

    source: Source
    operand: Tensor | None
    sums: Sequence[tuple[Tensor, Tensor]]
    products: Sequence[Product]
    gradient: Tensor | None = None
    by_tables: Sequence[Tensor] = ()
    by_factors: Tensor | None = None


def go_over(work: Pass) -> None:
    """Go over all tiles; the BLAS multiplies."""
    source = work.source
    for tile in source.cut_tiles(by_row=work.gradient is not None):
        span = slice(*tile[0].span)
        if work.operand is not None:
            source.fill(work.operand, tile)
        for features, room in work.sums:
            part = cut(features, span, source.n_edges)
            _add_orders(room[: len(part)], part, source.layout)
        for product in work.products:
            _multiply(product, span, source.n_edges)
        if work.gradient is not None:
            assert work.by_factors is not None
            part = work.gradient[: span.stop - span.start]
            source.differentiate(part, tile, work.by_tables, work.by_factors)


def cut(x: Tensor, span: slice, n_edges: int) -> Tensor:
    """Return the rows of a span, of all edges or of the tile at hand."""
    # A tile as long as all edges is the only one.
    return x[span] if len(x) == n_edges else x[: span.stop - span.start]


def _add_orders(sums: Tensor, x: Tensor, layout: Layout) -> None:
    """Write `x_m + x_-m` of the orders above 0 to sums, `(n_edges, rows of m > 0, C)`."""
    halves = [x[:, rows].chunk(2, 1) for rows in layout.blocks[1:]]
    torch.cat([plus + minus for plus, minus in halves], 1, out=sums)


def _multiply(product: Product, span: slice, n_edges: int) -> None:
    a, start = cut(product.a, span, n_edges), product.start
    if product.summed:
        product.out[0].add_(a.mT @ cut(product.b, span, n_edges))
        return
    out = cut(product.out, span, n_edges)
    if start is None:
        torch.mm(a, product.b, out=out)
        return
    # One row for all is what a BLAS adds at no cost.
    start = start[0] if start.stride(0) == 0 else cut(start, span, n_edges)
    torch.addmm(start, a, product.b, out=out)
