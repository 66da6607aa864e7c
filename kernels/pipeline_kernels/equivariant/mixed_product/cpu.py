"""The tensor product with mixed weights on the CPU, in C.

Rows of the weights are cut into ranges, each with derivatives by A of its own, which are added in
one order: no result depends on the number of threads, which share the ranges.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

import torch
from torch import Tensor

from pipeline_kernels.equivariant.mixed_product.graph import Graph
from pipeline_kernels.equivariant.tensor_product import cpu as one_by_one
from pipeline_kernels.message.tall.cpu import multiply
from pipeline_kernels.native import make_plain, pack
from pipeline_kernels.threads import count_ranges

MIN_RANGE: Final = 256
"""Fewest rows of a range with its own sums, unless there are fewer in all."""
ROWS: Final = 24
"""Rows of a range without sums."""
PART_BYTES: Final = 2**24
"""Bytes that the edges of a part send to their senders."""
READ: Final = ("g", "h", "Y", "w", "dh", "dY", "dw", "x", "dx", "A_T")
WRITTEN: Final = ("by_Y", "by_x", "by_A")
Where = tuple[Tensor, Sequence[Tensor], Sequence[int]]
"""Weights of the rows, or none, and the codes of the graph and of the plan."""


def mix(x: Tensor, A: Tensor) -> Tensor:
    """Implement `op._mix`."""
    return multiply(x, A)


def product(h: Tensor, Y: Tensor, x: Tensor, A: Tensor, *where: *Where) -> Tensor:
    """Implement `op._product`."""
    w, edges, code = where
    task = _Task(A, edges, code)
    w, rows = task.take(w, x), task.graph.rows.index
    out = one_by_one.product(task.fill_up(h), Y, w, task.graph.ends, code, rows)
    return task.crop(out)


def gradient(
    operands: Sequence[Tensor], wanted: Sequence[bool], *where: *Where
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Implement `op._gradient`."""
    (g, h, Y, x, A), (w, edges, code) = operands, where
    task = _Task(A, edges, code)
    by_Y, by_x = Y.new_empty(Y.shape), x.new_empty(x.shape)
    by_A = task.make_sums() if wanted[3] else None
    arrays = {"g": task.fill_up(g), "h": task.fill_up(h), "Y": Y, "x": x}
    arrays["w"] = task.take(w, x)
    results = {"by_Y": by_Y if wanted[1] else None, "by_x": by_x if wanted[2] else None}
    by_h = task.run("mixed_gradient", arrays, results | {"by_A": by_A})
    grads = zip((task.crop(by_h), by_Y, by_x, task.join(by_A)), wanted, strict=True)
    a, b, c, d = (t if want else t.new_empty((0,) * t.ndim) for t, want in grads)
    return a, b, c, d


def tangents(
    operands: Sequence[Tensor], directions: Sequence[Tensor], *where: *Where
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Implement `op._tangents`."""
    (g, h, Y, x, A), (dh, dY, dx), (w, edges, code) = operands, directions, where
    task = _Task(A, edges, code)
    g, h, dh = (task.fill_up(t) for t in (g, h, dh))
    w, dw = task.take(w, x), task.weigh(dx)
    factors, moves = (h, Y, w), (dh, dY, dw)
    rows = task.graph.rows.index
    by_g = one_by_one.product_tangent(factors, moves, task.graph.ends, code, rows)
    by_x, by_A = x.new_empty(x.shape), task.make_sums()
    arrays = {"g": g, "h": h, "Y": Y, "w": w, "dh": dh, "dY": dY, "dw": dw, "x": x, "dx": dx}
    by_h = task.run("mixed_tangents", arrays, {"by_x": by_x, "by_A": by_A})
    return task.crop(by_g), task.crop(by_h), by_x, task.join(by_A)


class _Task:
    """A graph and the map of its weights as C has them: channels fill whole vectors."""

    def __init__(self, A: Tensor, edges: Sequence[Tensor], code: Sequence[int]) -> None:
        self.plan, self.graph = one_by_one.decode_plan(tuple(code)), Graph.decode(edges)
        self.own = A.shape[1] // self.plan.n_paths
        self.lanes = one_by_one.count_lanes(code, A.dtype)
        self.channels = -(-self.own // self.lanes) * self.lanes
        self.A = self.fill_up(A.view(len(A), self.plan.n_paths, self.own)).flatten(1)

    def fill_up(self, x: Tensor) -> Tensor:
        """Return the tensor with zeros behind its channels."""
        return one_by_one.pad_channels(x, self.lanes)

    def crop(self, x: Tensor) -> Tensor:
        """Return the tensor with its own channels alone."""
        return one_by_one.crop_channels(x, self.own)

    def weigh(self, x: Tensor) -> Tensor:
        """Return the weights of rows, (n_rows, n_paths, channels)."""
        return multiply(x, self.A).view(len(x), self.plan.n_paths, self.channels)

    def take(self, w: Tensor, x: Tensor) -> Tensor:
        """Return the same of weights that are kept; where they are empty, make them."""
        if not w.numel():
            return self.weigh(x)
        return self.fill_up(w.view(len(x), self.plan.n_paths, self.own))

    def make_sums(self) -> Tensor:
        """Return zeros for the derivatives by A of each range."""
        n_ranges = count_ranges(self.graph.rows.n_segments, MIN_RANGE)
        return self.A.new_zeros(n_ranges, *self.A.shape)

    def join(self, sums: Tensor | None) -> Tensor:
        """Return the derivatives by A, (K, n_paths C)."""
        if sums is None:
            return self.A.new_empty(0, 0)
        by_A = sums.sum(0).view(len(self.A), self.plan.n_paths, self.channels)
        return by_A[..., : self.own].reshape(len(self.A), -1).contiguous()

    def run(
        self, name: str, arrays: Mapping[str, Tensor], results: Mapping[str, Tensor | None]
    ) -> Tensor:
        """Call a routine for all parts of the rows, and return their sums at senders."""
        read = {key: make_plain(t) for key, t in {**arrays, "A_T": self.A.T}.items()}
        sums = results["by_A"]
        by_h, sending = torch.zeros_like(read["h"]), self.graph.sending
        cuts, sent = self._divide(by_h)
        following, rows = sending.offsets.clone(), self.graph.rows
        groups = rows.order, rows.offsets
        native = one_by_one.NativeGraph(self.plan, by_h, self.graph.ends, groups, rows.index)
        lists = sending.order, sending.offsets, following, len(by_h)
        for begin, end in pairwise(cuts):
            n_ranges = -(-(end - begin) // ROWS) if sums is None else len(sums)
            tensors = *map(read.get, READ), sent, *map(results.get, WRITTEN)
            work = pack(*tensors, len(self.A), begin, end, n_ranges)
            native.call(name, work, memory_size="mixed_memory_size")
            native.call("add_to_senders", work, by_h, *lists)
        return by_h

    def _divide(self, by_h: Tensor) -> tuple[list[int], Tensor]:
        """Return the offsets of parts of the rows, and memory for the messages of their edges."""
        offsets, size = self.graph.rows.offsets, by_h[:1].numel()
        n_edges, n_rows = len(self.graph.senders.index), len(offsets) - 1
        most = max(1, PART_BYTES // max(1, size * by_h.element_size()))
        n_parts = max(1, -(-n_edges // most))
        shares = torch.arange(1, n_parts) * n_edges // n_parts
        cuts = [0, *torch.searchsorted(offsets, shares).tolist(), n_rows]
        return cuts, by_h.new_empty(int(offsets[cuts].diff().max()) * size)
