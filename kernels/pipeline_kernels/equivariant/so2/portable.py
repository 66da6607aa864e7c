"""Rotation to the frames of edges and back where no faster kernel is: `reference` tile by tile."""

from torch import Tensor

from pipeline_kernels.equivariant.so2 import reference
from pipeline_kernels.equivariant.so2.ends import Ends
from pipeline_kernels.equivariant.so2.layout import Layout

TILE_BYTES = 2**28  # of operands of a matrix product


def lift(
    y: Tensor,
    x: Tensor,
    frames: Tensor,
    factors: Tensor | None,
    ends: Ends,
    layout: Layout,
    turned: int = 0,
) -> None:
    """Write `reference.to_edges` of the span of `ends` to y."""
    part = slice(*ends.span)
    f = None if factors is None else factors[part]
    rotated = reference.to_edges(x[ends.picked], frames[part], f, None, layout)
    y.copy_(reference.turn(rotated, layout, turned))


def lower(
    x: Tensor,
    y: Tensor,
    frames: Tensor,
    factors: Tensor | None,
    ends: Ends,
    layout: Layout,
    turned: int = 0,
) -> None:
    """Add `reference.from_edges` of the span of `ends` to x; write rows of one edge each."""
    part = slice(*ends.span)
    f = None if factors is None else factors[part]
    y = reference.turn(y, layout, turned, back=True)
    if ends.index is None:
        x[part] = reference.from_edges(y, frames[part], f, None, len(x), layout)
    else:
        x += reference.from_edges(y, frames[part], f, ends.index[part], len(x), layout)


def factor_gradient(
    by_factors: Tensor,
    y: Tensor,
    x: Tensor,
    frames: Tensor,
    ends: Ends,
    layout: Layout,
    turned: int = 0,
) -> None:
    """Write `reference.factor_gradient` of the span of `ends` to rows of all edges."""
    part, n_factors = slice(*ends.span), by_factors.shape[1]
    y = reference.turn(y, layout, turned, back=True)
    by_factors[part] = reference.factor_gradient(
        y, x[ends.picked], frames[part], None, n_factors, layout
    )
