"""Rotations to the frames of edges and back in plain PyTorch, the oracle of the faster ones.

`lift`, `lower` and `factor_gradient` also run in place of a missing faster kernel, tile by tile.
"""

import torch
from torch import Tensor

from pipeline_kernels.equivariant.so2.ends import Rows
from pipeline_kernels.equivariant.so2.layout import Layout
from pipeline_kernels.equivariant.wigner import rotate

TILE_BYTES = 2**28  # of operands of a matrix product


def to_m_major(x: Tensor, layout: Layout) -> Tensor:
    """Sort components by order: `(n_edges, dim, C)` to `(n_edges, n_rows, C)`."""
    return x[:, layout.sources]


def to_l_major(y: Tensor, layout: Layout) -> Tensor:
    """Sort components by degree, with zeros where an order is left out."""
    out = y.new_zeros(len(y), layout.dim, y.shape[2])
    return out.index_copy(1, torch.tensor(layout.sources, device=y.device), y)


def turn(y: Tensor, layout: Layout, n: int, *, back: bool = False) -> Tensor:
    """Turn the last n channels by a quarter, `(y_m, y_-m)` to `(y_-m, -y_m)`, or back.

    Args:
        y: features by order `(n_edges, n_rows, C)`.
        layout: degrees and orders.
        n: number of channels.
        back: undoes it.
    """
    if not n:
        return y
    first = y.shape[2] - n
    opposite = [layout.places.index((degree, -order)) for degree, order in layout.places]
    signs = [1 if order == 0 or (order > 0) != back else -1 for _, order in layout.places]
    turned = y[:, opposite, first:] * torch.tensor(signs, device=y.device)[:, None]
    return torch.cat([y[..., :first], turned], 2)


def repeat_by_degree(factors: Tensor, layout: Layout) -> Tensor:
    """Repeat factors `(n_edges, lmax + 1 or 1, C)` for each component of a degree."""
    if factors.shape[1] == 1:
        return factors
    counts = torch.tensor([2 * degree + 1 for degree in range(layout.lmax + 1)])
    return factors.repeat_interleave(counts.to(factors.device), 1)


def to_edges(
    x: Tensor, frames: Tensor, factors: Tensor | None, index: Tensor | None, layout: Layout
) -> Tensor:
    """Return `y_e = P D_e (f_e x_i(e))`, `(n_edges, n_rows, C)`."""
    rows = x if index is None else x[index]
    scaled = rows if factors is None else rows * repeat_by_degree(factors, layout)
    return to_m_major(rotate(scaled, frames), layout)


def from_edges(
    y: Tensor,
    frames: Tensor,
    factors: Tensor | None,
    index: Tensor | None,
    n_nodes: int,
    layout: Layout,
) -> Tensor:
    """Return `x_i = sum over edges e with i(e) = i of f_e D_e^T P^T y_e`, `(n_nodes, dim, C)`."""
    turned = rotate(to_l_major(y, layout), frames, transposed=True)
    rows = turned if factors is None else turned * repeat_by_degree(factors, layout)
    if index is None:
        return rows
    return rows.new_zeros(n_nodes, *rows.shape[1:]).index_add(0, index, rows)


def differentiate_factors(
    y: Tensor, x: Tensor, frames: Tensor, index: Tensor | None, n_factors: int, layout: Layout
) -> Tensor:
    """Return the derivative of `sum y * to_edges(x)` by the factors."""
    rows = x if index is None else x[index]
    product = rotate(to_l_major(y, layout), frames, transposed=True) * rows
    if n_factors == 1:
        return product.sum(1, keepdim=True)
    sizes = [2 * degree + 1 for degree in range(layout.lmax + 1)]
    return torch.stack([part.sum(1) for part in product.split(sizes, 1)], 1)


def lift(y: Tensor, x: Tensor, frames: Tensor, factors: Tensor | None, *rows: *Rows) -> None:
    """Write `to_edges` of the span to y."""
    ends, layout, turned = rows
    part = slice(*ends.span)
    f = None if factors is None else factors[part]
    rotated = to_edges(x[ends.picked], frames[part], f, None, layout)
    y.copy_(turn(rotated, layout, turned))


def lower(x: Tensor, y: Tensor, frames: Tensor, factors: Tensor | None, *rows: *Rows) -> None:
    """Add `from_edges` of the span to x; write rows of one edge each."""
    ends, layout, turned = rows
    part = slice(*ends.span)
    f = None if factors is None else factors[part]
    y = turn(y, layout, turned, back=True)
    if ends.index is None:
        x[part] = from_edges(y, frames[part], f, None, len(x), layout)
    else:
        x += from_edges(y, frames[part], f, ends.index[part], len(x), layout)


def factor_gradient(by_factors: Tensor, y: Tensor, x: Tensor, frames: Tensor, *rows: *Rows) -> None:
    """Write `differentiate_factors` of the span to rows of all edges."""
    ends, layout, turned = rows
    part, n_factors = slice(*ends.span), by_factors.shape[1]
    y = turn(y, layout, turned, back=True)
    by_factors[part] = differentiate_factors(
        y, x[ends.picked], frames[part], None, n_factors, layout
    )
