"""The tensor product whose weights are splines of one number of each edge, its distance.

For a trained network, whose weights no longer change. A spline is of degree five between knots at
0, 1, ..., n, with values, slopes and curvatures given at them, so that it has two continuous
derivatives. Within an interval, with t from 0 to 1,

    w = v0 H0(t) + d0 H1(t) + s0 H2(t) + v1 H3(t) + d1 H4(t) + s1 H5(t),

where H are the Hermite polynomials of degree five. The error is h^6 max|w^(6)| / 46080 for knots h
apart. Weights of an edge are made where they are used, and never stored. Forward and reverse are
functions of their own; autograd does not see them.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline_kernels.equivariant.tensor_product import cpu
from pipeline_kernels.equivariant.tensor_product.op import _gradient, _product
from pipeline_kernels.equivariant.tensor_product.plan import ProductPlan
from pipeline_kernels.message.segments import Segments
from pipeline_kernels.native import UnavailableError

N_ROWS: Final = 3
"""Rows of a knot: value, slope, curvature, all with the distance of knots as unit."""
HERMITE: Final = torch.tensor(
    [
        [1, 0, 0, -10, 15, -6],
        [0, 1, 0, -6, 8, -3],
        [0, 0, 0.5, -1.5, 1.5, -0.5],
        [0, 0, 0, 10, -15, 6],
        [0, 0, 0, -4, 7, -3],
        [0, 0, 0, 0.5, -1, 0.5],
    ],
    dtype=torch.float64,
)
"""Coefficients of 1, t, ..., t^5 of each H."""


class Places(NamedTuple):
    """Where edges lie between the knots; the same for all splines with these knots.

    Attributes:
        first: first of six rows of a table, `(n_edges,)` int64.
        factors: what these are multiplied with, `(n_edges, 6)`.
        slopes: the same for the derivative, `(n_edges, 6)`.
    """

    first: Tensor
    factors: Tensor
    slopes: Tensor

    @classmethod
    def of(cls, x: Tensor, n_intervals: int) -> Self:
        """Find places.

        Args:
            x: `(n_edges,)`, from 0 to `n_intervals`; beyond it the outermost polynomial goes on.
            n_intervals: one less than there are knots.
        """
        interval = x.floor().clamp(0, n_intervals - 1)
        t = (x - interval)[:, None]
        powers = torch.cat([torch.ones_like(t), t.expand(-1, 5).cumprod(1)], dim=1)
        value = HERMITE.to(x)
        slope = value[:, 1:] * torch.arange(1, 6, device=x.device)
        return cls(N_ROWS * interval.long(), powers @ value.T, powers[:, :5] @ slope.T)

    def interpolate(self, table: Tensor) -> tuple[Tensor, Tensor]:
        """Return splines of this table (n_rows, size) and their derivatives, `(n_edges, size)`."""
        rows = table[self.first[:, None] + torch.arange(2 * N_ROWS, device=table.device)]
        weighted = (torch.einsum("ek,eks->es", f, rows) for f in (self.factors, self.slopes))
        return next(weighted), next(weighted)


class Ends(NamedTuple):
    """Who sends along each edge and who receives, and along which paths."""

    senders: Segments
    receivers: Segments
    plan: ProductPlan

    @property
    def edges(self) -> list[Tensor]:
        """As the operators of the tensor product take them."""
        both = (self.senders, self.receivers)
        return [x for ends in both for x in (ends.index, ends.order, ends.offsets)]


def multiply(
    h: Tensor, Y: Tensor, table: Tensor, places: Places, ends: Ends, *, in_blocks: bool = False
) -> Tensor:
    """Multiply and sum as `tensor_product` does, with interpolated weights.

    Args:
        h: features, `(n_senders, plan.dim_in, C)`, float32 or float64.
        Y: harmonics of each edge, `(n_edges, plan.dim_sh)`.
        table: `(3 n_knots, plan.n_paths * C)`, see `N_ROWS`.
        places: of the edges.
        ends: of the edges.
        in_blocks: how sums lie in memory.

    Returns:
        Sums `(receivers.n_segments, plan.dim_out, C)`, or `(receivers.n_segments * plan.dim_out,
        C)` in blocks, which `view_blocks` finds.
    """
    edges, code, n_nodes = ends.edges, ends.plan.encode(), ends.receivers.n_segments
    if _is_fused(h, code):
        rows = _place_rows(ends.plan, n_nodes, in_blocks)
        sums = cpu.interpolated_product(h, Y, (table, *places), edges, code, rows)
        return sums if in_blocks else sums.view(n_nodes, ends.plan.dim_out, h.shape[2])
    w, _ = places.interpolate(table)
    sums = _product(h, Y, w.unflatten(1, (ends.plan.n_paths, -1)), edges, code)
    if not in_blocks:
        return sums
    blocks = torch.empty_like(sums).flatten(0, 1)
    for block, paths in _pair_blocks(blocks, sums, ends.plan):
        block.copy_(paths)
    return blocks


def differentiate(
    g: Tensor,
    h: Tensor,
    Y: Tensor,
    table: Tensor,
    places: Places,
    ends: Ends,
    *,
    by_features: bool,
    in_blocks: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Differentiate `sum g * multiply(h, Y, ...)`.

    Args:
        g: shaped as the sums.
        h: as those of `multiply`.
        Y: as there.
        table: as there.
        places: as there.
        ends: as there.
        by_features: whether the first result is wanted; it is empty otherwise.
        in_blocks: how g lies in memory.

    Returns:
        Derivatives by h, by Y and by the x of `Places.of`, `(n_edges,)`.
    """
    edges, code, n_nodes = ends.edges, ends.plan.encode(), ends.receivers.n_segments
    if _is_fused(h, code):
        rows, operands = _place_rows(ends.plan, n_nodes, in_blocks), [g, h, Y]
        return cpu.interpolated_gradient(operands, (table, *places), edges, code, rows, by_features)
    if in_blocks:
        blocks, g = g, g.new_empty(n_nodes, ends.plan.dim_out, g.shape[1])
        for block, paths in _pair_blocks(blocks, g, ends.plan):
            paths.copy_(block)
    w, slopes = places.interpolate(table)
    operands = [g, h, Y, w.unflatten(1, (ends.plan.n_paths, -1))]
    by_h, by_Y, by_w = _gradient(operands, edges, code, [by_features, True, True])
    return by_h, by_Y, (by_w.flatten(1) * slopes).sum(1)


def view_blocks(sums: Tensor, plan: ProductPlan) -> list[Tensor]:
    """Return the block of each degree l of results: `(n_nodes, 2 l + 1, n_paths_l * C)`.

    A linear map of the results of a degree is one product of matrices with its block.

    Args:
        sums: of `multiply` with `in_blocks`.
        plan: of the product.
    """
    shapes = [(2 * degree + 1, n) for degree, n in _count_paths(plan).items()]
    n_nodes, channels = len(sums) // plan.dim_out, sums.shape[1]
    parts = sums.split([n_nodes * dim * n for dim, n in shapes])
    return [
        part.view(n_nodes, dim, n * channels) for part, (dim, n) in zip(parts, shapes, strict=True)
    ]


def _count_paths(plan: ProductPlan) -> dict[int, int]:
    """Return the number of paths of each degree of results; those of one lie side by side."""
    degrees = [path.degrees[2] for path in plan.paths]
    assert degrees == sorted(degrees)
    return Counter(degrees)


def _pair_blocks(
    blocks: Tensor, sums: Tensor, plan: ProductPlan
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield views of the same results in either layout, `(n_nodes, 2 l + 1, n_paths_l, C)`."""
    counts = _count_paths(plan)
    by_path = sums.split([n * (2 * degree + 1) for degree, n in counts.items()], dim=1)
    both = zip(view_blocks(blocks, plan), by_path, counts.values(), strict=True)
    for block, paths, n in both:
        yield block.unflatten(2, (n, -1)), paths.unflatten(1, (n, -1)).transpose(1, 2)


def _place_rows(plan: ProductPlan, n_nodes: int, in_blocks: bool) -> NDArray[np.int64]:
    """Return where results of each path lie: `Rows` in interpolated.c, `(n_paths, 4)`."""
    if not in_blocks:
        places = [(path.rows[2], plan.dim_out, 1, path.dims[2]) for path in plan.paths]
        return np.array(places, np.int64)
    places, row = [], 0
    for degree, n in _count_paths(plan).items():
        dim = 2 * degree + 1
        places += [(n_nodes * row + number, n * dim, n, dim) for number in range(n)]
        row += n * dim
    return np.array(places, np.int64)


def _is_fused(h: Tensor, code: list[int]) -> bool:
    """Return whether the library in C can be had, and takes so many channels."""
    if h.device.type != "cpu":
        return False
    try:
        return h.shape[2] % cpu.count_lanes(code, h.dtype) == 0
    except UnavailableError:
        return False
