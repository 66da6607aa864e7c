"""The tensor product on the CPU, in C.

A thread writes the result of whole nodes, so that no sum depends on the number of threads.
"""

import ctypes
from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from pipeline_kernels.equivariant.couplings import COMMON, write_couplings
from pipeline_kernels.equivariant.tensor_product.plan import ProductPlan
from pipeline_kernels.native import (
    Argument,
    Words,
    call_routine,
    compute_size,
    load_library,
    make_plain,
    pack,
)
from pipeline_kernels.threads import choose_threads

PIECES = 16  # per thread, so that none waits long for the last

MEMORY_SIZES = {
    **dict.fromkeys(("product", "gradient"), "memory_size"),
    **dict.fromkeys(("interpolated_product", "interpolated_gradient"), "interpolation_memory_size"),
}
"""For each routine, the function in C that returns the workspace of a thread in bytes."""

Edges = Sequence[Tensor]  # index, order and offsets of senders, then of receivers


class NativeGraph:
    """A graph as C reads it, and the library with the couplings of a plan.

    Args:
        plan: Representations and paths.
        like: All tensors have its type and number of channels, (n, components, channels).
        edges: Senders and receivers.
        groups: Order and offsets of the edges of each node that threads take.
        rows: Row of the weights that each edge has, None if each has its own.
    """

    def __init__(
        self,
        plan: ProductPlan,
        like: Tensor,
        edges: Edges,
        groups: tuple[Tensor, Tensor],
        rows: Tensor | None = None,
    ) -> None:
        self.library, paths = _load(plan, like.dtype)
        lists = [make_plain(x) for x in (*groups, edges[0], edges[3])]
        self.kept = *lists, None if rows is None else make_plain(rows), paths
        n_nodes, channels = len(groups[1]) - 1, like.shape[2]
        self.n_threads = choose_threads(edges[0].numel() * plan.n_paths * channels)
        self.struct = pack(  # `Graph` in native.c
            *self.kept,
            *(plan.n_paths, plan.dim_in, plan.dim_sh, plan.dim_out),
            *(n_nodes, max(1, n_nodes // (PIECES * self.n_threads)), channels),
        )

    def call(self, name: str, *arguments: Argument, memory_size: str | None = None) -> None:
        """Call a routine that takes the graph behind its arguments, in threads.

        Args:
            name: Name of the routine.
            arguments: Arguments before the graph.
            memory_size: Function in C that returns the bytes of a thread's workspace, if any.
        """
        n_bytes = compute_size(self.library, memory_size, self.struct) if memory_size else 0
        call_routine(
            self.library,
            name,
            *arguments,
            self.struct,
            n_threads=self.n_threads,
            n_bytes=n_bytes,
        )


def product(
    h: Tensor, Y: Tensor, w: Tensor, edges: Edges, code: Sequence[int], rows: Tensor | None = None
) -> Tensor:
    """Implement `reference.product` for the plan of `code`.

    With `rows`, edge e has the weights `w[rows[e]]`.
    """
    plan = decode_plan(tuple(code))
    n_nodes, channels = edges[5].shape[0] - 1, h.shape[2]
    lanes = _count_lanes(plan, h.dtype)
    h, w = pad_channels(h, lanes), pad_channels(w, lanes)
    out = h.new_empty(n_nodes, plan.dim_out, h.shape[2])
    _run("product", plan, [h, Y, w], [out], edges, by_sender=False, rows=rows)
    return crop_channels(out, channels)


def gradient(
    operands: Sequence[Tensor], edges: Edges, code: Sequence[int], wanted: Sequence[bool]
) -> tuple[Tensor, Tensor, Tensor]:
    """Implement `reference.gradient`; unwanted results by h, Y and w are empty."""
    plan = decode_plan(tuple(code))
    g, h, Y, w = operands
    channels, lanes = h.shape[2], _count_lanes(plan, h.dtype)
    g, h, w = pad_channels(g, lanes), pad_channels(h, lanes), pad_channels(w, lanes)
    by_h, by_Y, by_w = (
        x.new_empty(x.shape if want else (0,) * x.ndim)
        for x, want in zip((h, Y, w), wanted, strict=True)
    )
    _run("gradient", plan, [g, h, Y, w], [by_h, by_Y, by_w], edges, by_sender=wanted[0])
    return crop_channels(by_h, channels), by_Y, crop_channels(by_w, channels)


def product_tangent(
    factors: Sequence[Tensor],
    directions: Sequence[Tensor],
    edges: Edges,
    code: Sequence[int],
    rows: Tensor,
) -> Tensor:
    """Return the derivative of the product along directions of h, Y and w, with shared weights.

    Channels fill whole vectors (`count_lanes`).
    """
    plan = decode_plan(tuple(code))
    moving = [make_plain(x) for x in (*factors, *directions)]
    out = moving[0].new_empty(edges[5].shape[0] - 1, plan.dim_out, moving[0].shape[2])
    pointers = pack(*moving)
    _run("product_tangent", plan, [pointers], [out], edges, by_sender=False, rows=rows)
    return out


decode_plan = cache(ProductPlan.decode)
"""A plan of the integers of its code as a tuple; its paths are listed once."""


@cache
def _load(plan: ProductPlan, dtype: torch.dtype) -> tuple[ctypes.CDLL, np.ndarray]:
    """Return the library that has the couplings of a plan, and its paths: `Path` in native.c."""
    needed = sorted({path.degrees for path in plan.paths})
    couplings = list(COMMON) if set(needed) <= set(COMMON) else needed
    prelude = "" if couplings == list(COMMON) else write_couplings(couplings)
    paths = [(couplings.index(path.degrees), *path.rows) for path in plan.paths]
    library = load_library("tensor_product", dtype, prelude)
    return library, np.array(paths, np.int64)


def _count_lanes(plan: ProductPlan, dtype: torch.dtype) -> int:
    return compute_size(_load(plan, dtype)[0], "count_lanes")


def pad_channels(x: Tensor, lanes: int) -> Tensor:
    """Return the tensor as C reads it, its channels filled up with zeros to whole vectors."""
    missing = -x.shape[2] % lanes
    return make_plain(pad(x, (0, missing)) if missing else x)


def crop_channels(x: Tensor, channels: int) -> Tensor:
    """Return the first `channels` channels of a tensor."""
    return x if x.shape[2] <= channels else x[..., :channels].contiguous()


def count_lanes(code: Sequence[int], dtype: torch.dtype) -> int:
    """Return the lanes of a vector; interpolated routines take multiples of it as channels."""
    return _count_lanes(decode_plan(tuple(code)), dtype)


def interpolated_product(
    h: Tensor, Y: Tensor, interpolation: Sequence[Tensor], edges: Edges, code: Sequence[int]
) -> Tensor:
    """Implement `interpolated.multiply`."""
    plan = decode_plan(tuple(code))
    out = h.new_empty(edges[5].shape[0] - 1, plan.dim_out, h.shape[2])
    pointers = pack(*interpolation)
    _run("interpolated_product", plan, [h, Y, pointers], [out], edges, by_sender=False)
    return out


def interpolated_gradient(
    operands: Sequence[Tensor],
    interpolation: Sequence[Tensor],
    edges: Edges,
    code: Sequence[int],
    by_features: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Implement `interpolated.differentiate`."""
    plan = decode_plan(tuple(code))
    g, h, Y = operands
    by_h, by_Y, by_x = h.new_empty(h.shape if by_features else 0), Y.new_empty(Y.shape), Y[:, 0] * 0
    pointers = pack(*interpolation)
    results = [by_h, by_Y, by_x]
    _run("interpolated_gradient", plan, [g, h, Y, pointers], results, edges, by_features)
    return by_h, by_Y, by_x


def _run(
    name: str,
    plan: ProductPlan,
    operands: Sequence[Tensor | Words],
    results: Sequence[Tensor],
    edges: Edges,
    by_sender: bool,
    rows: Tensor | None = None,
) -> None:
    """Call a routine in as many threads as its work repays."""
    order, offsets = edges[1:3] if by_sender else edges[4:6]
    like = results[0] if name.endswith("tangent") else operands[0]
    assert isinstance(like, Tensor)
    n_nodes, channels = len(offsets) - 1, like.shape[2]
    if n_nodes == 0 or channels == 0:
        for x in results:
            x.zero_()
        return
    native = NativeGraph(plan, like, edges, (order, offsets), rows)
    for x in results:
        native.library.prefer_large_pages(ctypes.c_void_p(x.data_ptr()), ctypes.c_int64(x.nbytes))
    plain = (make_plain(x) if isinstance(x, Tensor) else x for x in operands)
    native.call(name, *plain, *results, memory_size=MEMORY_SIZES.get(name))
