"""Message passing as `torch.library` operators: devices, shapes, derivatives, checks."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from pipeline_kernels.checks import FLOATING, check_tensor
from pipeline_kernels.message.segments import cpu, reference
from pipeline_kernels.message.segments.plan import Plans, Segments
from pipeline_kernels.operators import define_derivative, define_operator


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
    shape = segments.n_elements, *values.shape[1:]
    check_tensor("values", values, shape, FLOATING, segments.index.device)
    return _segment_sum(values, segments.index, segments.order, segments.offsets)


def _check_gather(tables: Sequence[Tensor], segments: Sequence[Segments]) -> None:
    if not 1 <= len(tables) == len(segments) <= cpu.MAX_TABLES:
        raise ValueError(
            f"tables, segments: expected 1 to {cpu.MAX_TABLES} of each, equally many, "
            f"got {len(tables)} and {len(segments)}"
        )
    first, device = tables[0], segments[0].index.device
    for t, (table, plan) in enumerate(zip(tables, segments, strict=True)):
        shape, dtypes = (plan.n_segments, *first.shape[1:]), (first.dtype,) if t else FLOATING
        made = "as tables[0]" if t else ""
        check_tensor(f"tables[{t}]", table, shape, dtypes, device, made)
        plan.check(f"segments[{t}]", segments[0].n_elements, device)


def _shape_gather(tables: Sequence[Tensor], *plans: *Plans) -> Tensor:
    return tables[0].new_empty(plans[0][0].shape[0], *tables[0].shape[1:])


@define_operator(
    "gather_sum",
    cpu=cpu.gather_sum,
    cuda="pipeline_kernels.message.segments.cuda:gather_sum",
    fake=_shape_gather,
)
def _gather_sum(tables: Sequence[Tensor], *plans: *Plans) -> Tensor:
    return reference.gather_sum(tables, plans[0])


@define_operator(
    "segment_sum",
    cpu=cpu.segment_sum,
    cuda="pipeline_kernels.message.segments.cuda:segment_sum",
    fake=lambda values, _, __, offsets: values.new_empty(offsets.shape[0] - 1, *values.shape[1:]),
)
def _segment_sum(values: Tensor, index: Tensor, order: Tensor, offsets: Tensor) -> Tensor:
    return reference.segment_sum(values, index, offsets.shape[0] - 1)


def _gather_backward(ctx: Any, saved: Sequence[Any], grad: Tensor) -> tuple[list[Tensor | None]]:
    _, *lists = saved
    plans = zip(*lists, strict=True)  # (index, order, offsets) of each table
    needed = ctx.needs_input_grad[0]
    grads = [
        _segment_sum(grad, *plan) if need else None
        for plan, need in zip(plans, needed, strict=True)
    ]
    return (grads,)


def _segment_sum_backward(ctx: Any, saved: Sequence[Any], grad: Tensor) -> tuple[Tensor]:
    _, index, order, offsets = saved
    return (_gather_sum([grad], [index], [order], [offsets]),)


define_derivative(_gather_sum, _gather_backward, drop=[0])
define_derivative(_segment_sum, _segment_sum_backward, drop=[0])
