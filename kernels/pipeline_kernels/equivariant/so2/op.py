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
from pipeline_kernels.equivariant.so2.ends import Ends
from pipeline_kernels.equivariant.so2.layout import Layout
from pipeline_kernels.equivariant.wigner import count_entries
from pipeline_kernels.message.segments import Segments
from pipeline_kernels.native import UnavailableError
from pipeline_kernels.operators import define_derivative, define_operator


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
    check_tensor("frames", frames, ("n_edges", count_entries(layout.lmax)))


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


def _count_rows(edges: Sequence[Tensor], frames: Tensor) -> int:
    return edges[2].shape[0] - 1 if edges[2].shape[0] else frames.shape[0]


@define_operator(
    "so2_to_edges",
    fake=lambda x, D, f, _, code: x.new_empty(D.shape[0], Layout(*code[:2]).n_rows, x.shape[2]),
)
def _lift(
    x: Tensor,
    frames: Tensor,
    factors: Tensor | None,
    edges: Sequence[Tensor],
    code: Sequence[int],
) -> Tensor:
    layout, n_edges = Layout(*code[:2]), len(frames)
    y = x.new_empty(n_edges, layout.n_rows, x.shape[2])
    choose_kernels(x, layout).lift(
        y, *_make_plain(x, frames, factors), Ends.of(edges, n_edges), layout, code[2]
    )
    return y


@define_operator(
    "so2_from_edges",
    fake=lambda y, D, f, edges, code: y.new_empty(
        _count_rows(edges, D), Layout(*code[:2]).dim, y.shape[2]
    ),
)
def _lower(
    y: Tensor,
    frames: Tensor,
    factors: Tensor | None,
    edges: Sequence[Tensor],
    code: Sequence[int],
) -> Tensor:
    layout, n_edges = Layout(*code[:2]), len(frames)
    make = y.new_zeros if len(edges[2]) else y.new_empty
    x = make(_count_rows(edges, frames), layout.dim, y.shape[2])
    choose_kernels(y, layout).lower(
        x, *_make_plain(y, frames, factors), Ends.of(edges, n_edges), layout, code[2]
    )
    return x


@define_operator(
    "so2_factor_gradient",
    fake=lambda y, x, D, edges, code, n: y.new_empty(D.shape[0], n, y.shape[2]),
)
def _factor_gradient(
    y: Tensor,
    x: Tensor,
    frames: Tensor,
    edges: Sequence[Tensor],
    code: Sequence[int],
    n_factors: int,
) -> Tensor:
    """Differentiate `S` by as many factors for each edge and channel."""
    by_f = y.new_empty(len(frames), n_factors, y.shape[2])
    layout, ends = Layout(*code[:2]), Ends.of(edges, len(frames))
    operands = _make_plain(y, x, frames)
    choose_kernels(y, layout).factor_gradient(by_f, *operands, ends, layout, code[2])
    return by_f


def _lift_backward(ctx: Any, saved: Sequence[Any], y: Tensor) -> tuple[Tensor | None, ...]:
    x, frames, f, edges, code = saved
    by_x = _lower(y, frames, f, edges, code) if ctx.needs_input_grad[0] else None
    by_f = None
    if f is not None and ctx.needs_input_grad[2]:
        by_f = _factor_gradient(y, x, frames, edges, code, f.shape[1])
    return by_x, None, by_f


def _lower_backward(ctx: Any, saved: Sequence[Any], x: Tensor) -> tuple[Tensor | None, ...]:
    y, frames, f, edges, code = saved
    by_y = _lift(x, frames, f, edges, code) if ctx.needs_input_grad[0] else None
    by_f = None
    if f is not None and ctx.needs_input_grad[2]:
        by_f = _factor_gradient(y, x, frames, edges, code, f.shape[1])
    return by_y, None, by_f


def _factor_gradient_backward(
    ctx: Any, saved: Sequence[Any], f: Tensor
) -> tuple[Tensor | None, ...]:
    y, x, frames, edges, code, _ = saved
    by_y = _lift(x, frames, f, edges, code) if ctx.needs_input_grad[0] else None
    by_x = _lower(y, frames, f, edges, code) if ctx.needs_input_grad[1] else None
    return by_y, by_x


define_derivative(_lift, _lift_backward)
define_derivative(_lower, _lower_backward)
define_derivative(_factor_gradient, _factor_gradient_backward)
