"""Products of matrices of one tile of edges after the other."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Multiply = Callable[[slice], None]


@dataclass(frozen=True, eq=False)
class Product:
    """What is multiplied for each tile: `out = start + a b`, or `out += a^T b` if summed.

    Rows of `a`, and of `out` or `b`, belong to edges: to all of them, or to those of a tile. The
    latter are room for the tile at hand.

    Attributes:
        out: the result.
        a: the left operand.
        b: the right operand.
        start: a row to start from, or one of each edge of a tile.
        summed: whether the sum is over edges.
    """

    out: Tensor
    a: Tensor
    b: Tensor
    start: Tensor | None = None
    summed: bool = False


def prepare(products: Sequence[Product], n_edges: int) -> Multiply:
    """Return what multiplies the edges of a span, by the BLAS."""

    def multiply(span: slice) -> None:
        for product in products:
            a, start = cut(product.a, span, n_edges), product.start
            if product.summed:
                product.out.add_(a.mT @ cut(product.b, span, n_edges))
                continue
            out = cut(product.out, span, n_edges)
            if start is None:
                torch.mm(a, product.b, out=out)
                continue
            start = start if start.ndim == 1 else start[: len(out)]
            torch.addmm(start, a, product.b, out=out)

    return multiply


def cut(x: Tensor, span: slice, n_edges: int) -> Tensor:
    """Return the rows of a span, of all edges or of the tile at hand."""
    # A tile as long as all edges is the only one.
    return x[span] if len(x) == n_edges else x[: span.stop - span.start]
