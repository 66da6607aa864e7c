"""The map and its derivatives on the CPU, in C. No sum depends on the number of threads."""

import ctypes
from collections.abc import Sequence
from ctypes import c_int64, c_void_p
from typing import NamedTuple

import numpy as np
from torch import Tensor

from pipeline_kernels.equivariant.linear.plan import LinearPlan
from pipeline_kernels.native import (
    C_TYPES,
    call_routine,
    compute_size,
    load_library,
    make_plain,
)
from pipeline_kernels.threads import choose_threads

POINTERS = ("x", "g", "out", "panels", "weights", "offsets", "counts", "factors")
SIZES = ("n_groups", "n_degrees", "n_blocks", "C", "D", "dim_in", "is_transposed")


class Work(ctypes.Structure):
    """`Work` in native.c."""

    _fields_ = (
        *((name, c_void_p) for name in POINTERS),
        *((name, c_int64) for name in SIZES),
    )


class Map(NamedTuple):
    """What all routines are told.

    Attributes:
        weights: of each degree, `(n_groups, count C, D)`.
        offsets: of the groups of rows.
        plan: representations that come in.
        factors: of each degree.
        channels: C and D.
    """

    weights: Sequence[Tensor]
    offsets: Tensor
    plan: LinearPlan
    factors: Sequence[float]
    channels: tuple[int, int]

    def call(
        self,
        library: ctypes.CDLL,
        name: str,
        n_operations: int,
        is_transposed: bool = False,
        **tensors: Tensor,
    ) -> None:
        """Call a routine in as many threads as its work repays."""
        lists = {
            "weights": np.array([W.data_ptr() for W in self.weights]),
            "counts": np.array(self.plan.counts),
            "factors": np.array(self.factors, float),
        }
        offsets, counts = make_plain(self.offsets), self.plan.counts
        sizes = len(offsets) - 1, len(counts), sum(counts), *self.channels, self.plan.dim_in
        work = Work(
            **{key: tensor.data_ptr() for key, tensor in tensors.items()},
            **{key: numbers.ctypes.data for key, numbers in lists.items()},
            offsets=offsets.data_ptr(),
            **dict(zip(SIZES, (*sizes, int(is_transposed)), strict=True)),
        )
        call_routine(library, name, work, n_threads=choose_threads(n_operations))


def linear(
    x: Tensor,
    weights: Sequence[Tensor],
    offsets: Tensor,
    code: Sequence[int],
    factors: Sequence[float],
    is_transposed: bool,
) -> Tensor:
    """Implement `op._linear`."""
    plan, library = LinearPlan.decode(code), load_library("linear", REAL=C_TYPES[x.dtype])
    n_groups, height, D = weights[0].shape
    C, n_blocks = height // plan.counts[0], sum(plan.counts)
    depth, width, components = (D, C, plan.dim_in) if is_transposed else (C, D, plan.dim_out)
    out = x.new_empty(len(x), components, width)
    if out.numel() == 0:
        return out
    columns = compute_size(library, "count_columns")
    panels = x.new_empty(n_groups * n_blocks * depth * (-(-width // columns) * columns))
    x, plain = make_plain(x), [make_plain(W) for W in weights]
    task = Map(plain, offsets, plan, factors, (C, D))
    task.call(library, "lay_panels", panels.numel(), is_transposed, panels=panels)
    operations = len(x) * plan.dim_in * C * D
    task.call(library, "map_rows", operations, is_transposed, x=x, out=out, panels=panels)
    return out


def by_weights(
    x: Tensor, g: Tensor, offsets: Tensor, code: Sequence[int], factors: Sequence[float]
) -> list[Tensor]:
    """Implement `op._by_weights`."""
    plan, library = LinearPlan.decode(code), load_library("linear", REAL=C_TYPES[x.dtype])
    n_groups, C, D = len(offsets) - 1, x.shape[2], g.shape[2]
    results = [x.new_empty(n_groups, count * C, D) for count in plan.counts]
    if C * D:
        task = Map(results, offsets, plan, factors, (C, D))
        operations = len(x) * plan.dim_in * C * D
        task.call(library, "sum_rows", operations, x=make_plain(x), g=make_plain(g))
    return results
