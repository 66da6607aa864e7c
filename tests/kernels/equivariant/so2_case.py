"""A convolution in the frames of edges, and the implementations of its kernels on the CPU."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from pipeline_kernels.equivariant.so2 import (
    Layout,
    Table,
    cpu,
    op,
    portable,
    reference,
    so2_convolution,
)
from pipeline_kernels.equivariant.wigner import compute_edge_frames
from pipeline_kernels.message import Segments

IMPLEMENTATIONS = ["C", "plain"]
N_EXTRA = 3


@dataclass
class Case:
    """Features of senders, receivers and edges; factors, weights, bias; the graph.

    If some channels are turned, those of the first table are not all, and weights of m > 0 are
    single matrices.
    """

    layout: Layout
    tables: list[Tensor]
    rows: list[Segments | None]
    vectors: Tensor
    frames: Tensor
    factors: Tensor | None
    weights: list[Tensor]
    bias: Tensor
    turned: tuple[int, ...] = (0, 0, 0)

    @classmethod
    def of(
        cls,
        layout,
        n_nodes=4,
        n_edges=7,
        channels=(2, 1, 3),
        channels_out=2,
        dtype=torch.float64,
        seed=0,
        n_factors=None,
        *,
        turned=False,
    ):
        generator = torch.Generator().manual_seed(seed)

        def normal(*shape):
            return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)

        ends = torch.randint(max(1, n_nodes), (2, n_edges), generator=generator)
        rows = [Segments.of(ends[0], n_nodes), Segments.of(ends[1].sort().values, n_nodes), None]
        counts = [n_nodes, n_nodes, n_edges]
        n_factors = n_factors or layout.lmax + 1
        shapes = layout.list_weight_shapes(sum(channels), channels_out, N_EXTRA)
        shapes = [shape[-2:] if turned else shape for shape in shapes]
        vectors = normal(n_edges, 3)
        return cls(
            layout,
            [normal(n, layout.dim, c) for n, c in zip(counts, channels, strict=True)],
            rows,
            vectors,
            compute_edge_frames(vectors, layout.lmax),
            normal(n_edges, n_factors, sum(channels)),
            [normal(*shape) / shape[-2] ** 0.5 for shape in shapes],
            normal((layout.lmax + 1) * channels_out + N_EXTRA),
            tuple(c - c // 2 if turned else 0 for c in channels),
        )

    @property
    def operands(self):
        return [*self.tables, self.factors, *self.weights, self.bias]

    def split(self, operands):
        n = len(self.tables)
        return operands[:n], operands[n], operands[n + 1 : -1], operands[-1]

    def result(self, *operands):
        tables, factors, weights, bias = self.split(operands or self.operands)
        frames, layout = self.frames, self.layout
        tables = [Table(*part) for part in zip(tables, self.rows, self.turned, strict=True)]
        return so2_convolution(tables, frames, weights, bias, layout, factors, N_EXTRA)

    def reference(self, *operands):
        tables, factors, weights, bias = self.split(operands or self.operands)
        parts = [
            reference.turn(
                reference.to_edges(x, self.frames, None, rows and rows.index, self.layout),
                self.layout,
                turned,
            )
            for x, rows, turned in zip(tables, self.rows, self.turned, strict=True)
        ]
        x = reference.scale(torch.cat(parts, 2), factors, self.layout)
        return reference.so2_linear(x, weights, bias, self.layout, N_EXTRA)


@contextmanager
def use_implementation(name: str) -> Iterator[None]:
    """Everything is calculated by C, or as on other devices."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu, "TILE_BYTES", 2**14)
        patch.setattr(portable, "TILE_BYTES", 2**14)
        if name == "plain":
            patch.setattr(op, "cpu", portable)
            patch.setattr(portable, "load", lambda *_: None, raising=False)
        yield
