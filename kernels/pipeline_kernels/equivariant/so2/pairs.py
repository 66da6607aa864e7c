"""Products with pairs of weights W_r, W_i of an order m > 0: three in place of four.

    t = (x_m + x_-m) W_r,    y_m = t - x_-m (W_r + W_i),    y_-m = t + x_m (W_i - W_r)

as of complex numbers (D. E. Knuth, The Art of Computer Programming 2, section 4.6.4).
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pipeline_kernels.equivariant.so2.layout import Layout
from pipeline_kernels.equivariant.so2.tiles import Product


class Pair(NamedTuple):
    """An order whose weights are a pair.

    Attributes:
        number: of the weights.
        plus: rows of m.
        minus: rows of -m.
        both: rows of their sum, among all orders above 0.
    """

    number: int
    plus: slice
    minus: slice
    both: slice


def pack_pair(real: Tensor, imaginary: Tensor) -> Tensor:
    """Return the weights of the three products, `(3, rows, columns)`."""
    return torch.stack([real, imaginary - real, -(real + imaginary)])


def list_pairs(weights: Sequence[Tensor], layout: Layout) -> list[Pair]:
    """Return the orders whose weights come from `pack_pair`."""
    pairs, begin = [], 0
    for m in range(1, layout.mmax + 1):
        rows, n = layout.blocks[m], layout.count_degrees(m)
        if weights[m].ndim == 3:
            halves = slice(rows.start, rows.start + n), slice(rows.start + n, rows.stop)
            pairs.append(Pair(m, *halves, slice(begin, begin + n)))
        begin += n
    return pairs


def list_products(
    x: Tensor, out: Tensor, sums: Tensor, weights: Sequence[Tensor], pairs: Sequence[Pair]
) -> list[Product]:
    """Return the products of sums, then those that begin with their results.

    Args:
        x: features by order.
        out: results by order, of all edges or of a tile.
        sums: room for the sums of x.
        weights: of all orders; of pairs from `pack_pair`.
        pairs: orders.
    """
    shared = out.new_empty(*sums.shape[:2], out.shape[2])
    first, then = [], []
    for pair in pairs:
        real, of_plus, of_minus = weights[pair.number].unbind(0)
        start = flatten(shared, pair.both)
        first.append(Product(start, flatten(sums, pair.both), real))
        halves = (pair.plus, pair.minus, of_minus), (pair.minus, pair.plus, of_plus)
        then += [Product(flatten(out, to), flatten(x, by), W, start) for to, by, W in halves]
    return first + then


def flatten(x: Tensor, rows: slice) -> Tensor:
    """View rows of each edge as one row of a matrix."""
    part = x[:, rows]
    return part.view(len(x), part.shape[1] * part.shape[2])
