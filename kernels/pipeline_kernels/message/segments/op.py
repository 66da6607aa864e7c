"""Message passing as `torch.library` operators: devices, shapes, derivatives, checks."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pipeline_kernels.message.segments import cpu, reference
from pipeline_kernels.message.segments.plan import Segments

MAX_TABLES = 4
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def gather_sum(tables: Sequence[Tensor], segments: Sequence[Segments]) -> Tensor:
    """Sum rows of several tables for each edge: `h_e = sum_t tables[t][index_t(e)]`.

    Differentiable any number of times; the derivative by a table is `segment_sum`.

    | symbol    | argument            |
    |-----------|---------------------|
    | `table_t` | `tables[t]`         |
    | `index_t` | `segments[t].index` |
    | `h_e`     | the result          |

    Args:
        tables: one to four tensors `(n_t, *features)` of one floating dtype, device and unit.
        segments: for each table, which row each edge takes: `n_segments = n_t`, one `n_elements`.

    Returns:
        Tensor `(n_elements, *features)` in the unit of the tables.

    Raises:
        ValueError: if the tables and plans do not fit together.
    """
    _check_gather(tables, segments)
    return _gather_sum(
        list(tables),
        [plan.index for plan in segments],
        [plan.order for plan in segments],
        [plan.offsets for plan in segments],
    )


def segment_sum(values: Tensor, segments: Segments) -> Tensor:
    """Sum the values of each segment: `out_s = sum of values_e over e with index(e) = s`.

    Differentiable any number of times; the derivative is `gather_sum`. The terms of a segment are
    added in a fixed order, so the result is reproducible to the last bit on one device, whatever
    the number of threads. An empty segment gives zero.

    | symbol     | argument         |
    |------------|------------------|
    | `values_e` | `values[e]`      |
    | `index`    | `segments.index` |
    | `out_s`    | the result       |

    Args:
        values: floating tensor `(n_elements, *features)`.
        segments: the segment of each element.

    Returns:
        Tensor `(n_segments, *features)` in the unit of `values`.

    Raises:
        ValueError: if the values and the plan do not fit together.
    """
    _check_rows("values", values, segments.n_elements, segments)
    return _segment_sum(values, segments.index, segments.order, segments.offsets)


def _check_gather(tables: Sequence[Tensor], segments: Sequence[Segments]) -> None:
    if not 1 <= len(tables) == len(segments) <= MAX_TABLES:
        raise ValueError(
            f"tables, segments: expected 1 to {MAX_TABLES} of each, equally many, "
            f"got {len(tables)} and {len(segments)}"
        )
    first, plan = tables[0], segments[0]
    for t, (table, other) in enumerate(zip(tables, segments, strict=True)):
        _check_rows(f"tables[{t}]", table, other.n_segments, other)
        if (table.shape[1:], table.dtype, table.device) != (
            first.shape[1:],
            first.dtype,
            first.device,
        ):
            raise ValueError(
                f"tables[{t}]: expected features {tuple(first.shape[1:])}, {first.dtype} on "
                f"{first.device} as tables[0], got {tuple(table.shape[1:])}, {table.dtype} on "
                f"{table.device}"
            )
        if other.n_elements != plan.n_elements:
            raise ValueError(
                f"segments[{t}]: expected n_elements = {plan.n_elements} as segments[0], "
                f"got {other.n_elements}"
            )


def _check_rows(name: str, tensor: Tensor, n_rows: int, segments: Segments) -> None:
    if tensor.dtype not in DTYPES:
        raise ValueError(f"{name}: expected a dtype of {DTYPES}, got {tensor.dtype}")
    if tensor.ndim == 0 or tensor.shape[0] != n_rows:
        raise ValueError(
            f"{name}: expected {n_rows} rows as its segments, got shape {tuple(tensor.shape)}"
        )
    if tensor.device != segments.index.device:
        raise ValueError(
            f"{name}: expected device {segments.index.device} of its segments, got {tensor.device}"
        )


@torch.library.custom_op("pipeline_kernels::gather_sum", mutates_args=())
def _gather_sum(
    tables: Sequence[Tensor],
    indices: Sequence[Tensor],
    orders: Sequence[Tensor],
    offsets: Sequence[Tensor],
) -> Tensor:
    return reference.gather_sum(tables, indices)


@_gather_sum.register_kernel("cpu")
def _gather_sum_cpu(tables, indices, orders, offsets):
    return cpu.gather_sum(tables, indices)


@_gather_sum.register_kernel("cuda")
def _gather_sum_cuda(tables, indices, orders, offsets):
    from pipeline_kernels.message.segments import cuda

    return cuda.gather_sum(tables, indices)


@_gather_sum.register_fake
def _gather_sum_shape(tables, indices, orders, offsets):
    return tables[0].new_empty(indices[0].shape[0], *tables[0].shape[1:])


@torch.library.custom_op("pipeline_kernels::segment_sum", mutates_args=())
def _segment_sum(values: Tensor, index: Tensor, order: Tensor, offsets: Tensor) -> Tensor:
    return reference.segment_sum(values, index, offsets.shape[0] - 1)


@_segment_sum.register_kernel("cpu")
def _segment_sum_cpu(values, index, order, offsets):
    return cpu.segment_sum(values, order, offsets)


@_segment_sum.register_kernel("cuda")
def _segment_sum_cuda(values, index, order, offsets):
    from pipeline_kernels.message.segments import cuda

    return cuda.segment_sum(values, order, offsets)


@_segment_sum.register_fake
def _segment_sum_shape(values, index, order, offsets):
    return values.new_empty(offsets.shape[0] - 1, *values.shape[1:])


def _save_gather(ctx: Any, inputs: tuple[list[Tensor], ...], output: Tensor) -> None:
    _, indices, orders, offsets = inputs
    ctx.n_tables = len(indices)
    ctx.save_for_backward(*indices, *orders, *offsets)


def _gather_sum_backward(ctx: Any, grad: Tensor) -> tuple[list[Tensor | None], ...]:
    n = ctx.n_tables
    plans = [ctx.saved_tensors[t::n] for t in range(n)]  # (index, order, offsets) of each table
    grads = [
        _segment_sum(grad, *plan) if needed else None
        for plan, needed in zip(plans, ctx.needs_input_grad[0], strict=True)
    ]
    return grads, [None] * n, [None] * n, [None] * n


def _save_segments(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[1:])


def _segment_sum_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    index, order, offsets = ctx.saved_tensors
    return _gather_sum([grad], [index], [order], [offsets]), None, None, None


_gather_sum.register_autograd(_gather_sum_backward, setup_context=_save_gather)
_segment_sum.register_autograd(_segment_sum_backward, setup_context=_save_segments)
