"""Message passing on the CPU, in C: each row of the output is written by one thread."""

import math
from collections.abc import Sequence
from typing import Final

from torch import Tensor

from pipeline_kernels.checks import REAL
from pipeline_kernels.message.segments.plan import Plans, Segments
from pipeline_kernels.native import call_routine, load_library, make_plain, pack
from pipeline_kernels.threads import choose_threads

LIGHT: Final = 8
"""Numbers that are copied or added in the time of one number in other kernels."""
RANGES: Final = 4
"""Ranges of the output per thread: rows differ in their number of summands."""
MAX_TABLES: Final = 4
MAX_SUMS: Final = 5


def gather_sum(tables: Sequence[Tensor], *plans: *Plans) -> Tensor:
    """Implement `reference.gather_sum` in one pass over the output."""
    first, indices = tables[0], plans[0]
    if first.dtype not in REAL:  # narrower types are summed in float32
        wide = [table.float() for table in tables]
        return gather_sum(wide, *plans).to(first.dtype)
    out = first.new_empty(len(indices[0]), *first.shape[1:])
    plain, rows = ([make_plain(x) for x in lists] for lists in (tables, indices))
    n_threads, n_ranges = _share(out.numel())
    none = [None] * (MAX_TABLES - len(plain))
    sizes = len(plain), len(out), math.prod(out.shape[1:]), n_ranges
    arguments = pack(*plain, *none, *rows, *none, out, *sizes)
    library = load_library("segments", first.dtype)
    call_routine(library, "gather_rows", arguments, n_threads=n_threads)
    return out


def segment_sum(values: Tensor, index: Tensor, order: Tensor, offsets: Tensor) -> Tensor:
    """Implement `reference.segment_sum` for the plan `Segments(index, order, offsets)`."""
    if values.dtype not in REAL:
        return segment_sum(values.float(), index, order, offsets).to(values.dtype)
    (sums,) = sum_segments([values], [Segments(index, order, offsets)])
    return sums


def sum_segments(values: Sequence[Tensor], plans: Sequence[Segments]) -> list[Tensor]:
    """Sum the values of several plans in one call.

    Args:
        values: At most five tensors (n_elements, *features) of one type, float32 or float64.
        plans: The segments of each.

    Returns:
        The sums, (n_segments, *features) each.
    """
    assert len(values) <= MAX_SUMS
    results: list[Tensor] = []
    members: list[Tensor | int] = []
    for x, plan in zip(values, plans, strict=True):
        out = x.new_empty(plan.n_segments, *x.shape[1:])
        results.append(out)
        members += [make_plain(y) for y in (x, plan.order, plan.offsets)]
        members += [out, plan.n_segments, math.prod(out.shape[1:])]
    none = [None] * (len(members) // len(results) * (MAX_SUMS - len(results)))
    n_threads, n_ranges = _share(sum(x.numel() for x in (*values, *results)))
    library = load_library("segments", values[0].dtype)
    arguments = pack(*members, *none, len(results), n_ranges)
    call_routine(library, "sum_segments", arguments, n_threads=n_threads)
    return results


def _share(n_elements: int) -> tuple[int, int]:
    """Choose the numbers of threads and of the ranges that they share."""
    n_threads = choose_threads(n_elements // LIGHT)
    return n_threads, 1 if n_threads == 1 else RANGES * n_threads
