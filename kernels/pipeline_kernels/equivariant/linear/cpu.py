"""The map and its derivatives on the CPU, in C. No sum depends on the number of threads."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from torch import Tensor

from pipeline_kernels.equivariant.linear.plan import LinearPlan
from pipeline_kernels.native import (
    Argument,
    call_routine,
    compute_size,
    load_library,
    make_plain,
    pack,
)
from pipeline_kernels.threads import choose_threads

# Offsets of groups, code of the plan, factors, whether the map is transposed.
How = tuple[Tensor | None, Sequence[int], Sequence[float], bool]


def linear(x: Tensor, weights: Sequence[Tensor], bias: Tensor | None, *how: *How) -> Tensor:
    """Implement `op._linear`."""
    offsets, code, factors, is_transposed = how
    plan, library = LinearPlan.decode(code), load_library("linear", x.dtype)
    (height, D), n_groups = weights[0].shape[-2:], _count_groups(offsets)
    C, n_blocks = height // plan.counts[0], sum(plan.counts)
    depth, width, components = (D, C, plan.dim_in) if is_transposed else (C, D, plan.dim_out)
    out = x.new_empty(len(x), components, width)
    if out.numel() == 0:
        return out
    columns = compute_size(library, "count_columns")
    panels = x.new_empty(n_groups * n_blocks * depth * (-(-width // columns) * columns))
    x, plain = make_plain(x), [make_plain(W) for W in weights]
    lists = _list_members(plain, offsets, len(x), plan, factors)
    bias = None if bias is None else make_plain(bias)
    sizes = n_groups, len(plan.counts), n_blocks, C, D, plan.dim_in, is_transposed
    work = pack(x, None, out, panels, *lists, bias, *sizes)
    call_routine(library, "lay_panels", work, n_threads=choose_threads(panels.numel()))
    n_threads = choose_threads(len(x) * plan.dim_in * C * D)
    call_routine(library, "map_rows", work, n_threads=n_threads)
    return out


def by_weights(
    x: Tensor, g: Tensor, offsets: Tensor | None, code: Sequence[int], factors: Sequence[float]
) -> list[Tensor]:
    """Implement `op._by_weights`."""
    plan, library = LinearPlan.decode(code), load_library("linear", x.dtype)
    n_groups, C, D = _count_groups(offsets), x.shape[2], g.shape[2]
    own = () if offsets is None else (n_groups,)
    results = [x.new_empty(*own, count * C, D) for count in plan.counts]
    if C * D == 0:
        return results
    x, g = make_plain(x), make_plain(g)
    lists = _list_members(results, offsets, len(x), plan, factors)
    sizes = n_groups, len(plan.counts), sum(plan.counts), C, D, plan.dim_in, 0
    n_threads = choose_threads(len(x) * plan.dim_in * C * D)
    work = pack(x, g, None, None, *lists, None, *sizes)
    call_routine(library, "sum_rows", work, n_threads=n_threads)
    return results


def _list_members(
    weights: Sequence[Tensor],
    offsets: Tensor | None,
    n_rows: int,
    plan: LinearPlan,
    factors: Sequence[float],
) -> tuple[Argument, ...]:
    """Return weights, offsets of groups, counts and factors for C; to be kept while it runs."""
    ends = _make_ends(n_rows) if offsets is None else make_plain(offsets)
    return pack(*weights), ends, *_make_lists(plan.counts, tuple(factors))


def _count_groups(offsets: Tensor | None) -> int:
    return 1 if offsets is None else len(offsets) - 1


@lru_cache(1024)
def _make_ends(n_rows: int) -> np.ndarray:
    return np.array([0, n_rows])


@lru_cache(1024)
def _make_lists(counts: tuple[int, ...], factors: tuple[float, ...]) -> tuple[np.ndarray, ...]:
    return np.array(counts, np.int64), np.array(factors, np.float64)
