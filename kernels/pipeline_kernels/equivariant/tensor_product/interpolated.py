"""The tensor product whose weights are splines of one number of each edge, its distance.

For a trained network, whose weights no longer change. They are made where they are used, and never
stored (`pipeline_kernels.hermite`). Forward and reverse are functions of their own; autograd does
not see them.
"""

from typing import NamedTuple

from torch import Tensor

from pipeline_kernels.equivariant.tensor_product import cpu
from pipeline_kernels.equivariant.tensor_product.op import _gradient, _product
from pipeline_kernels.equivariant.tensor_product.plan import ProductPlan
from pipeline_kernels.hermite import Places
from pipeline_kernels.message.segments import Segments
from pipeline_kernels.native import UnavailableError


class Ends(NamedTuple):
    """Senders and receivers of edges, and the coupling paths."""

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
        table: `(3 n_knots, plan.n_paths * C)`, of `hermite`.
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
        h: as in `multiply`.
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
    """Test that the library in C is available and supports the number of channels."""
    if h.device.type != "cpu":
        return False
    try:
        return h.shape[2] % cpu.count_lanes(code, h.dtype) == 0
    except UnavailableError:
        return False
