"""`gather_sum` and `segment_sum`: C, torch, and Triton interpreted, compiled and on a GPU.

Oracles: numpy's indexing and `np.add.at` for the reference; the reference (torch's own
`index_select` and `index_add`) for the kernels.
"""

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from torch.testing import assert_close

from kernels.contract import Call, KernelContract
from pipeline_kernels.message.segments import Segments, gather_sum, reference, segment_sum


class Sums(KernelContract):
    """Shared contract of both sums: rows of tables, and the rows that an edge takes."""

    tolerances = {
        torch.float32: 2e-6,
        torch.float64: 1e-14,
        torch.bfloat16: 4 * 2**-7,
        torch.float16: 4 * 2**-10,
    }
    options = {
        "n_edges": [50, 1],
        "features": [(17,), (), (64,), (2, 3), (130,), (0,)],
        "n_rows": [(4, 3), (20,), (9, 1, 300, 7)],
    }
    few, many = {"n_edges": 6, "features": (3,)}, {"n_edges": 5000, "n_rows": (300, 7)}
    empty, third = {"n_edges": 0}, True
    random = {
        "n_edges": st.integers(0, 80),
        "n_rows": st.lists(st.integers(1, 20), min_size=1, max_size=4),
    }
    interpreted = [{}, {"features": (130,)}, {"features": ()}, {"features": (5, 5)}, empty]

    def draw(self, generator, n_edges, features, n_rows):
        """Tables, a plan for each, of which the first ascends, and values of the edges."""
        indices = [torch.randint(n, (n_edges,), generator=generator) for n in n_rows]
        indices[0] = indices[0].sort().values
        plans = [Segments.of(index, n) for index, n in zip(indices, n_rows, strict=True)]
        shapes = [(n, *features) for n in (*n_rows, n_edges)]
        *tables, values = (torch.randn(s, generator=generator).double() for s in shapes)
        return self.call(tables, values, plans)


class TestGatherSum(Sums):
    folder = "message/segments"
    refused = [
        (None, lambda a: [[]], "expected 1 to 4 of each, equally many, got 0 and 0"),
        (-1, lambda plans: plans[:1], "got 2 and 1"),
        (None, lambda a: [*a[:-1] * 3, a[-1] * 3], "got 6 and 6"),
        (1, lambda t: t[:2], r"tables\[1\]: expected \(3, 17\) .* \(2, 17\)"),
        (1, lambda t: t[:, :2], r"tables\[1\]: expected \(3, 17\)"),
        (1, lambda t: t.float(), r"tables\[1\]: .*float64.* got .*float32"),
        (0, lambda t: t.long(), r"tables\[0\]: expected .*int64"),
        (0, lambda t: t.to("meta"), r"tables\[0\]: expected .* on cpu, got .* on meta"),
        (
            -1,
            lambda plans: [plans[0], Segments.of(torch.tensor([0]), 3)],
            r"segments\[1\]: expected 50 elements on cpu, got 1",
        ),
    ]

    def call(self, tables, _, plans):
        def gather(*arguments):
            return gather_sum(arguments[:-1], arguments[-1])

        def gather_by_torch(*arguments):
            return reference.gather_sum(arguments[:-1], [plan.index for plan in arguments[-1]])

        return Call(gather, gather_by_torch, tables, [plans])


class TestSegmentSum(Sums):
    folder = "message/segments"
    refused = [(0, lambda values: values[1:], r"values: expected \(50, 17\) .* got \(49, 17\)")]

    def call(self, _, values, plans):
        def sum_by_torch(values, plan):
            return reference.segment_sum(values, plan.index, plan.n_segments)

        return Call(segment_sum, sum_by_torch, [values], [plans[-1]])


def test_reference_equals_numpy():
    call = TestGatherSum().make()
    tables, (plans,) = call.tensors, call.constants
    rows = sum(t.numpy()[p.index.numpy()] for t, p in zip(tables, plans, strict=True))
    values = reference.gather_sum(tables, [p.index for p in plans])
    assert_close(values, torch.as_tensor(rows))
    sums = np.zeros((plans[0].n_segments, 17))
    np.add.at(sums, plans[0].index.numpy(), values.numpy())
    assert_close(reference.segment_sum(values, plans[0].index, 4), torch.as_tensor(sums))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_types_are_summed_in_float32(dtype):
    ones, plan = torch.ones(5000, 2, dtype=dtype), Segments.of(torch.zeros(5000).long(), 1)
    assert segment_sum(ones, plan).tolist() == [[torch.tensor(5000).to(dtype).item()] * 2]
    assert gather_sum([ones[:1], ones[:1]], [plan, plan]).unique().tolist() == [2]
