"""Rotation to the frames of edges and back as operators of torch.

The sum `S(y, x, f) = sum_e y_e . P D_e (f_e x_i(e))` is linear in each argument, and the operators
are its derivatives by y, x and f. So each derivative of them, of any order, is one of the three.
"""

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from pipeline_kernels.cache import protect_triton
from pipeline_kernels.checks import REAL, check_tensor
from pipeline_kernels.equivariant.so2 import cpu, reference
from pipeline_kernels.equivariant.so2.ends import Ends, Rows
from pipeline_kernels.equivariant.so2.layout import Layout
from pipeline_kernels.equivariant.wigner import count_entries
from pipeline_kernels.message.segments import Segments
from pipeline_kernels.native import UnavailableError
from pipeline_kernels.operators import define_derivative, define_operator

Where = tuple[Sequence[Tensor], Sequence[int]]
"""Lists from `list_ends`; lmax, mmax and how many of the last channels are turned."""


def from_edges(
    y: Tensor,
    frames: Tensor,
    layout: Layout,
    receivers: Segments | None = None,
    factors: Tensor | None = None,
    turned: int = 0,
) -> Tensor:
    """Rotate features back and sum over edges: `x_i = sum_{e: i(e) = i} f_e D_e^T P^T y_e`.

    Differentiable any number of times by `y` and `factors`. Each sum has a fixed order.

    | symbol | argument                                                                     |
    |--------|------------------------------------------------------------------------------|
    | `y`    | `y`                                                                          |
    | `i(e)` | `receivers.index`, or `e`                                                    |
    | `f`    | `factors`, or 1                                                              |
    | `D`    | `frames`                                                                     |
    | `P`    | sorts components by order and drops those beyond `layout.mmax`               |

    Args:
        y: features by order, `(n_edges, layout.n_rows, C)`; types narrower than `frames` are
            converted.
        frames: from `compute_edge_frames`, `(n_edges, count_entries(lmax))`, float32 or float64.
        layout: degrees and orders.
        receivers: to which row each edge contributes; edges are not summed if not given.
        factors: `(n_edges, lmax + 1, C)` by degree, or `(n_edges, 1, C)`, for instance gates or
            attention; converted as `y`.
        turned: how many of the last channels of `y` are turned by a quarter.

    Returns:
        Features by degree, `(receivers.n_segments or n_edges, layout.dim, C)`, zero where no edge
        arrives.

    Raises:
        ValueError: if the arguments do not fit together.
    """
    check_frames(frames, layout)
    y = y.to(torch.promote_types(y.dtype, frames.dtype))
    if factors is not None:
        factors = factors.to(torch.promote_types(factors.dtype, frames.dtype))
    check_tensor("y", y, (len(frames), layout.n_rows, "C"), (frames.dtype,), frames.device)
    if receivers is not None:
        receivers.check("receivers", len(frames), frames.device)
    check_factors(factors, y.shape[2], frames, layout)
    check_turned("turned", turned, y)
    code = [layout.lmax, layout.mmax, turned]
    return _lower(y, frames, factors, list_ends(receivers, frames), code)


def list_ends(segments: Segments | None, like: Tensor) -> list[Tensor]:
    """Return the three lists of a plan, empty ones for none."""
    if segments is None:
        return [like.new_empty(0, dtype=torch.int64) for _ in range(3)]
    return [segments.index, segments.order, segments.offsets]


def choose_kernels(x: Tensor, layout: Layout) -> ModuleType:
    """Return the module of the tensor's device; the reference without a compiled one."""
    if x.device.type == "cuda":
        protect_triton()
        from pipeline_kernels.equivariant.so2 import cuda

        return cuda
    if x.device.type != "cpu" or x.dtype not in REAL:
        return reference
    try:
        cpu.load(layout, x.dtype)
    except UnavailableError:
        return reference
    return cpu


def check_frames(frames: Tensor, layout: Layout) -> None:
    """Raise `ValueError` unless they are frames of the layout."""
    made = f"as compute_edge_frames makes for lmax = {layout.lmax}"
    check_tensor("frames", frames, ("n_edges", count_entries(layout.lmax)), made=made)


def check_factors(factors: Tensor | None, channels: int, frames: Tensor, layout: Layout) -> None:
    """Raise `ValueError` unless there is a factor for each channel, or for each of each degree."""
    if factors is not None:
        one = factors.ndim == 3 and factors.shape[1] == 1
        shape = len(frames), 1 if one else layout.lmax + 1, channels
        check_tensor("factors", factors, shape, (frames.dtype,), frames.device)


def check_turned(name: str, count: int, x: Tensor) -> None:
    """Raise `ValueError` unless there are as many channels."""
    if not 0 <= count <= x.shape[2]:
        raise ValueError(f"{name}: expected at most {x.shape[2]} channels, got {count}")


def _make_plain(*tensors: Tensor | None) -> list[Any]:
    return [None if x is None else x.detach().contiguous() for x in tensors]


def _find_rows(frames: Tensor, edges: Sequence[Tensor], code: Sequence[int]) -> Rows:
    return Ends.of(edges, len(frames)), Layout(*code[:2]), code[2]


def _count_rows(edges: Sequence[Tensor], frames: Tensor) -> int:
    return edges[2].shape[0] - 1 if edges[2].shape[0] else frames.shape[0]


@define_operator(
    "so2_to_edges",
    fake=lambda x, D, f, _, code: x.new_empty(D.shape[0], Layout(*code[:2]).n_rows, x.shape[2]),
)
def _lift(x: Tensor, frames: Tensor, factors: Tensor | None, *where: *Where) -> Tensor:
    ends, layout, turned = _find_rows(frames, *where)
    y = x.new_empty(len(frames), layout.n_rows, x.shape[2])
    operands = _make_plain(x, frames, factors)
    choose_kernels(x, layout).lift(y, *operands, ends, layout, turned)
    return y


@define_operator(
    "so2_from_edges",
    fake=lambda y, D, f, edges, code: y.new_empty(
        _count_rows(edges, D), Layout(*code[:2]).dim, y.shape[2]
    ),
)
def _lower(y: Tensor, frames: Tensor, factors: Tensor | None, *where: *Where) -> Tensor:
    ends, layout, turned = _find_rows(frames, *where)
    make = y.new_empty if ends.index is None else y.new_zeros
    x = make(_count_rows(where[0], frames), layout.dim, y.shape[2])
    operands = _make_plain(y, frames, factors)
    choose_kernels(y, layout).lower(x, *operands, ends, layout, turned)
    return x


@define_operator(
    "so2_factor_gradient",
    fake=lambda y, x, D, n, *_: y.new_empty(D.shape[0], n, y.shape[2]),
)
def _factor_gradient(
    y: Tensor, x: Tensor, frames: Tensor, n_factors: int, *where: *Where
) -> Tensor:
    """Differentiate `S` by as many factors for each edge and channel."""
    ends, layout, turned = _find_rows(frames, *where)
    by_f = y.new_empty(len(frames), n_factors, y.shape[2])
    operands = _make_plain(y, x, frames)
    choose_kernels(y, layout).factor_gradient(by_f, *operands, ends, layout, turned)
    return by_f


def _lift_backward(ctx: Any, saved: Sequence[Any], y: Tensor) -> tuple[Tensor | None, ...]:
    x, frames, f, *where = saved
    by_x = _lower(y, frames, f, *where) if ctx.needs_input_grad[0] else None
    return by_x, None, _differentiate_factors(ctx, y, x, frames, f, where)


def _lower_backward(ctx: Any, saved: Sequence[Any], x: Tensor) -> tuple[Tensor | None, ...]:
    y, frames, f, *where = saved
    by_y = _lift(x, frames, f, *where) if ctx.needs_input_grad[0] else None
    return by_y, None, _differentiate_factors(ctx, y, x, frames, f, where)


def _differentiate_factors(
    ctx: Any, y: Tensor, x: Tensor, frames: Tensor, f: Tensor | None, where: Sequence[Any]
) -> Tensor | None:
    if f is None or not ctx.needs_input_grad[2]:
        return None
    return _factor_gradient(y, x, frames, f.shape[1], *where)


def _factor_gradient_backward(
    ctx: Any, saved: Sequence[Any], f: Tensor
) -> tuple[Tensor | None, ...]:
    y, x, frames, _, *where = saved
    by_y = _lift(x, frames, f, *where) if ctx.needs_input_grad[0] else None
    by_x = _lower(y, frames, f, *where) if ctx.needs_input_grad[1] else None
    return by_y, by_x


define_derivative(_lift, _lift_backward)
define_derivative(_lower, _lower_backward)
define_derivative(_factor_gradient, _factor_gradient_backward)
