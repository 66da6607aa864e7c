"""The matrix products of an SO(2) convolution, forward and backward."""

from collections.abc import Sequence

from torch import Tensor

from pipeline_kernels.equivariant.so2 import passes
from pipeline_kernels.equivariant.so2.layout import Layout
from pipeline_kernels.equivariant.so2.operands import Source
from pipeline_kernels.equivariant.so2.pairs import Pair, flatten, list_pairs, list_products
from pipeline_kernels.equivariant.so2.tiles import Pass, Product


def forward(
    source: Source, weights: Sequence[Tensor], bias: Tensor, n_extra: int
) -> tuple[Tensor, Tensor]:
    """Return the features `(n_edges, n_rows, C_out)` and the scalars `(n_edges, n_extra)`."""
    layout = source.layout
    n_main = bias.shape[1] - n_extra
    y = bias.new_empty(source.n_edges, layout.n_rows, n_main // layout.count_degrees(0))
    extra = bias.new_empty(source.n_edges, n_extra)
    x, first, pairs = source.make_operand(), weights[0], list_pairs(weights, layout)
    sums = source.make_sums(x)
    products = list_products(x, y, sums, weights, pairs)
    (rows, _), *others = _split_rows(x.shape[2], weights, layout)
    x_0 = flatten(x, rows)
    main, rest = bias.tensor_split([n_main], 1)
    products.append(Product(flatten(y, rows), x_0, first[:, :n_main], main))
    if n_extra:
        products.append(Product(extra, x_0, first[:, n_main:], rest))
    products += [
        Product(flatten(y, rows), flatten(x, rows), weights[number]) for rows, number in others
    ]
    operand = None if source.is_ready else x
    passes.go_over(Pass(source, operand, [(x, sums)] if pairs else [], products))
    return y, extra


def backward(
    source: Source,
    weights: Sequence[Tensor],
    g: Tensor,
    g_scalars: Tensor,
    results: tuple[Sequence[Tensor], Tensor, Sequence[Tensor]],
) -> None:
    """Find the gradients of `sum g y + sum g_extra extra` by tables, factors and weights.

    Args:
        source: of the operands.
        weights: as in `forward`.
        g: `(n_edges, n_rows, C_out)`.
        g_scalars: of each edge the rows of g of order 0, then g_extra.
        results: what is filled or added to, by weights for each group of tiles; empty ones are not
            wanted.
    """
    by_tables, by_factors, by_weights = results
    x, pairs = source.make_operand(), list_pairs(weights, source.layout)
    rows = _split_rows(sum(source.channels), weights, source.layout)
    parts = [g_scalars, *(flatten(g, some) for some, _ in rows[1:])]
    sums, products = [], []
    of_g = source.make_sums(g)
    if pairs:
        sums.append((g, of_g))
    if by_weights:
        of_x = source.make_sums(x)
        sums += [(x, of_x)] if pairs else []
        products += [
            Product(by_weights[number], flatten(x, some), part, summed=True)
            for (some, number), part in zip(rows, parts, strict=True)
        ]
        for pair in pairs:
            products += _differentiate_pair(x, g, (of_x, of_g), by_weights, pair)
    gradient = None
    if any(some.numel() for some in (*by_tables, by_factors)):
        gradient = source.make_room()
        turned = [W.mT.contiguous() for W in weights]
        for pair in pairs:  # what y_m takes of x_-m is what x_-m takes of y_m
            turned[pair.number] = turned[pair.number][[0, 2, 1]]
        products += list_products(g, gradient, of_g, turned, pairs)
        products += [
            Product(flatten(gradient, some), part, turned[number])
            for (some, number), part in zip(rows, parts, strict=True)
        ]
    operand = x if by_weights and not source.is_ready else None
    passes.go_over(Pass(source, operand, sums, products, gradient, by_tables, by_factors))


def _differentiate_pair(
    x: Tensor, g: Tensor, sums: tuple[Tensor, Tensor], by_weights: Sequence[Tensor], pair: Pair
) -> list[Product]:
    """Return the sums over edges for the gradients by the three weights."""
    real, of_plus, of_minus = by_weights[pair.number].unbind(1)
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
