"""The tensor product whose weights are splines of one number of each edge, its distance.

For a trained network, whose weights no longer change. A spline is of degree five between knots at
0, 1, ..., n, with values, slopes and curvatures given at them, so that it has two continuous
derivatives. Within an interval, with t from 0 to 1,

    w = v0 H0(t) + d0 H1(t) + s0 H2(t) + v1 H3(t) + d1 H4(t) + s1 H5(t),

where H are the Hermite polynomials of degree five. The error is h^6 max|w^(6)| / 46080 for knots h
apart. Weights of an edge are made where they are used, and never stored. Forward and reverse are
functions of their own; autograd does not see them.
"""

from typing import Final, NamedTuple, Self

import torch
from torch import Tensor

from pipeline_kernels.equivariant.tensor_product import cpu
from pipeline_kernels.equivariant.tensor_product.op import _gradient, _product
from pipeline_kernels.equivariant.tensor_product.plan import ProductPlan
from pipeline_kernels.message.segments import Segments
from pipeline_kernels.native import UnavailableError

N_ROWS: Final = 3
"""Rows of a knot: value, slope, curvature, all with the distance of knots as unit."""
_HERMITE: Final = torch.tensor(
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
        powers = t ** torch.arange(6, device=x.device)
        value = _HERMITE.to(x)
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


def multiply(h: Tensor, Y: Tensor, table: Tensor, places: Places, ends: Ends) -> Tensor:
    """Multiply and sum as `tensor_product` does, with interpolated weights.

    Args:
        h: features, `(n_senders, plan.dim_in, C)`, float32 or float64.
        Y: harmonics of each edge, `(n_edges, plan.dim_sh)`.
        table: `(3 n_knots, plan.n_paths * C)`, see `N_ROWS`.
        places: of the edges.
        ends: of the edges.

    Returns:
        Sums `(receivers.n_segments, plan.dim_out, C)`.
    """
    edges, code = ends.edges, ends.plan.encode()
    if _is_fused(h, code):
        return cpu.interpolated_product(h, Y, (table, *places), edges, code)
    w, _ = places.interpolate(table)
    return _product(h, Y, w.unflatten(1, (ends.plan.n_paths, -1)), edges, code)


def differentiate(
    g: Tensor, h: Tensor, Y: Tensor, table: Tensor, places: Places, ends: Ends, by_features: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Differentiate `sum g * multiply(h, Y, ...)`.

    Args:
        g: `(receivers.n_segments, plan.dim_out, C)`.
        h: as those of `multiply`.
        Y: as there.
        table: as there.
        places: as there.
        ends: as there.
        by_features: whether the first result is wanted; it is empty otherwise.

    Returns:
        Derivatives by h, by Y and by the x of `Places.of`, `(n_edges,)`.
    """
    edges, code = ends.edges, ends.plan.encode()
    if _is_fused(h, code):
        return cpu.interpolated_gradient([g, h, Y], (table, *places), edges, code, by_features)
    w, slopes = places.interpolate(table)
    operands = [g, h, Y, w.unflatten(1, (ends.plan.n_paths, -1))]
    by_h, by_Y, by_w = _gradient(operands, edges, code, [by_features, True, True])
    return by_h, by_Y, (by_w.flatten(1) * slopes).sum(1)


def _is_fused(h: Tensor, code: list[int]) -> bool:
    """Return whether the library in C can be had, and takes so many channels."""
    if h.device.type != "cpu":
        return False
    try:
        return h.shape[2] % cpu.count_lanes(code, h.dtype) == 0
    except UnavailableError:
        return False
