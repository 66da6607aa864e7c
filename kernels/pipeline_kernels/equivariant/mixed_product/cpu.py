"""The tensor product with mixed weights on the CPU, in C.

Receivers are cut into ranges, each with derivatives by A of its own, which are added in one order:
no result depends on the number of threads, which share the ranges.
"""

import ctypes
from collections.abc import Iterator, Sequence
from ctypes import c_int64, c_void_p
from functools import cache
from itertools import pairwise
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from pipeline_kernels.equivariant.couplings import COMMON, write_couplings
from pipeline_kernels.equivariant.tensor_product import ProductPlan
from pipeline_kernels.native import (
    C_TYPES,
    call_routine,
    compute_size,
    load_library,
    make_plain,
)
from pipeline_kernels.threads import choose_threads

MAX_RANGES: Final = 32
MIN_RANGE: Final = 192
"""Edges that a range has on average at least, unless there are fewer."""
PART_BYTES: Final = 2**24
"""Of what the edges of a part send to their senders."""
POINTERS: Final = (
    *("g", "h", "Y", "x", "dh", "dY", "dx", "A", "A_T"),
    *("out", "by_h", "by_Y", "by_x", "by_A", "senders", "offsets", "paths"),
)
SHAPE: Final = ("n_paths", "dim_in", "dim_sh", "dim_out", "channels", "K")
SIZES: Final = (*SHAPE, "begin", "end", "n_ranges")

Edges = Sequence[Tensor]  # index, order and offsets of senders, then of receivers


class Work(ctypes.Structure):
    """`Work` in native.c."""

    _fields_ = (
        *((name, c_void_p) for name in POINTERS),
        *((name, c_int64) for name in SIZES),
    )


def product(
    h: Tensor, Y: Tensor, x: Tensor, A: Tensor, edges: Edges, code: Sequence[int]
) -> Tensor:
    """Implement `op._product`."""
    task = _Task(h, A, edges, code)
    out = h.new_empty(task.n_receivers, task.plan.dim_out, task.channels)
    task.run("mixed_product", {"h": task.fill_up(h), "Y": Y, "x": x, "out": out}, None)
    return task.crop(out)


def gradient(
    operands: Sequence[Tensor], edges: Edges, code: Sequence[int], wanted: Sequence[bool]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Implement `op._gradient`."""
    g, h, Y, x, A = operands
    task = _Task(h, A, edges, code)
    by_h, by_Y, by_x = h.new_zeros(len(h), *task.row), torch.empty_like(Y), torch.empty_like(x)
    by_A = task.make_sums() if wanted[3] else None
    arrays = {"g": task.fill_up(g), "h": task.fill_up(h), "Y": Y, "x": x}
    others = {"by_Y": by_Y if wanted[1] else None, "by_x": by_x if wanted[2] else None}
    task.run("mixed_gradient", arrays | others | {"by_A": by_A}, by_h)
    results = task.crop(by_h), by_Y, by_x, task.join(by_A)
    pairs = zip(results, wanted, strict=True)
    a, b, c, d = (r if want else r.new_empty((0,) * r.ndim) for r, want in pairs)
    return a, b, c, d


def tangents(
    operands: Sequence[Tensor], directions: Sequence[Tensor], edges: Edges, code: Sequence[int]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Implement `op._tangents`."""
    g, h, Y, x, A = operands
    dh, dY, dx = directions
    task = _Task(h, A, edges, code)
    by_h, by_x, by_A = h.new_zeros(len(h), *task.row), torch.empty_like(x), task.make_sums()
    by_g = h.new_empty(len(g), task.plan.dim_out, task.channels)
    arrays = {"g": task.fill_up(g), "h": task.fill_up(h), "Y": Y, "x": x, "out": by_g}
    moves = {"dh": task.fill_up(dh), "dY": dY, "dx": dx, "by_x": by_x, "by_A": by_A}
    task.run("mixed_tangents", arrays | moves, by_h)
    return task.crop(by_g), task.crop(by_h), by_x, task.join(by_A)


class _Task:
    """A graph and the map of its weights, as C has them: channels fill whole panels."""

    def __init__(self, h: Tensor, A: Tensor, edges: Edges, code: Sequence[int]) -> None:
        self.plan, self.edges = _decode(tuple(code)), edges
        self.library, self.paths = _load(self.plan, h.dtype)
        self.n_receivers, self.K = edges[5].shape[0] - 1, A.shape[0]
        self.own, self.panel = h.shape[2], compute_size(self.library, "count_columns")
        self.channels = -(-self.own // self.panel) * self.panel
        self.row = self.plan.dim_in, self.channels
        A = self.fill_up(A.view(self.K, self.plan.n_paths, -1)).view(self.K, -1)
        n_panels = A.shape[1] // self.panel
        self.A = A.view(self.K, n_panels, self.panel).transpose(0, 1).contiguous()
        self.A_T = A.T.contiguous()
        n_edges = len(edges[0])
        self.n_ranges = max(1, min(MAX_RANGES, n_edges // MIN_RANGE))

    def fill_up(self, x: Tensor) -> Tensor:
        """Return the tensor with zeros behind its channels."""
        missing = self.channels - x.shape[2]
        return make_plain(pad(x, (0, missing)) if missing else x)

    def crop(self, x: Tensor) -> Tensor:
        """Return the tensor with its own channels alone."""
        return x if self.own == self.channels else x[..., : self.own].contiguous()

    def make_sums(self) -> Tensor:
        """Return zeros for the derivatives by A of each range."""
        return self.A.new_zeros(self.n_ranges, *self.A.shape)

    def join(self, sums: Tensor | None) -> Tensor:
        """Return the derivatives by A, (K, n_paths C)."""
        if sums is None:
            return self.A.new_empty(0, 0)
        by_A = sums.sum(0).transpose(0, 1).reshape(self.K, self.plan.n_paths, self.channels)
        return by_A[..., : self.own].reshape(self.K, -1)

    def run(self, name: str, arrays: dict[str, Tensor | None], by_h: Tensor | None) -> None:
        """Call a routine for all parts of the receivers; what goes to senders is added behind."""
        index, order, offsets, _, _, receiver_offsets = map(make_plain, self.edges)
        plain = {key: make_plain(x) for key, x in arrays.items() if x is not None}
        plain |= {"A": self.A, "A_T": self.A_T, "senders": index, "offsets": receiver_offsets}
        shape = self.plan.n_paths, self.plan.dim_in, self.plan.dim_sh, self.plan.dim_out
        sizes = dict(zip(SHAPE, (*shape, self.channels, self.K), strict=True))
        pointers = {key: x.data_ptr() for key, x in plain.items()}
        work = Work(**pointers, **sizes, paths=self.paths.ctypes.data, n_ranges=self.n_ranges)
        n_bytes = compute_size(self.library, "memory_size", work)
        cuts, sent, following = self._divide(by_h)
        for begin, end in pairwise(cuts):
            work.begin, work.end, work.by_h = begin, end, sent.data_ptr()
            n_edges = int(receiver_offsets[end] - receiver_offsets[begin])
            n_threads = choose_threads(n_edges * self.A.numel())
            call_routine(self.library, name, work, n_threads=n_threads, n_bytes=n_bytes)
            if by_h is not None:
                ends = order if order.numel() else None, offsets, following, len(by_h)
                n_threads = choose_threads(n_edges * self.plan.dim_in * self.channels)
                call_routine(
                    self.library, "add_to_senders", work, by_h, *ends, n_threads=n_threads
                )

    def _divide(self, by_h: Tensor | None) -> tuple[list[int], Tensor, Tensor]:
        """Return where parts begin, memory for their edges, and the first edge of each sender."""
        offsets = self.edges[5]
        if by_h is None:
            return [0, self.n_receivers], self.A.new_empty(0), offsets
        n_edges, size = len(self.edges[0]), self.plan.dim_in * self.channels
        most = max(1, PART_BYTES // (size * by_h.element_size()))
        n_parts = max(1, -(-n_edges // most))
        shares = torch.arange(1, n_parts) * n_edges // n_parts
        cuts = [0, *torch.searchsorted(offsets, shares).tolist(), self.n_receivers]
        ends = offsets[cuts]
        sent = self.A.new_empty(int(ends.diff().max()) * size)
        return cuts, sent, self.edges[2].clone()


_decode = cache(ProductPlan.decode)


@cache
def _load(plan: ProductPlan, dtype: torch.dtype) -> tuple[ctypes.CDLL, np.ndarray]:
    """Return the library that has the couplings of a plan, and its paths: `Path` in native.c."""
    needed = sorted({path.degrees for path in plan.paths})
    couplings = list(COMMON) if set(needed) <= set(COMMON) else needed
    prelude = "" if couplings == list(COMMON) else write_couplings(couplings)
    paths = [(couplings.index(path.degrees), *path.rows) for path in plan.paths]
    library = load_library("mixed_product", prelude, REAL=C_TYPES[dtype])
    return library, np.array(paths, np.int64)
