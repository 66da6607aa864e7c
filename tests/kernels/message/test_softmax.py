"""Softmax of segments: plain PyTorch, C, and Triton interpreted, compiled and on a GPU.

Oracles: `torch.softmax` of each segment by itself, finite differences.
"""

import pytest
import torch
from hypothesis import strategies as st

from kernels.contract import Call, KernelContract
from pipeline_kernels.message import Segments
from pipeline_kernels.message.softmax import segment_softmax


def weights_by_segment(logits, segments):
    """Take each segment by itself."""
    weights = torch.zeros_like(logits)
    for s in range(segments.n_segments):
        mask = segments.index == s
        part = torch.softmax(logits[mask], 0)
        weights = weights.masked_scatter(mask[:, None].expand_as(weights), part)
    return weights


class TestSegmentSoftmax(KernelContract):
    folder = "message/softmax"
    tolerances = {torch.float32: 2e-5, torch.float64: 1e-13}
    options = {
        "n_edges": [40, 1],
        "n_segments": [4, 1, 60],
        "n_heads": [2, 1, 3, 0, 25],
        "ordered": [True, False],
    }
    few, many = {"n_edges": 9}, {"n_edges": 3000, "n_segments": 600}
    empty = {"n_edges": 0, "n_segments": 0}
    random = {"n_edges": st.integers(0, 60), "n_segments": st.integers(1, 9)}
    interpreted = [{"n_heads": 3}, {}, {"n_heads": 1}, empty]
    compiled = [{"ordered": False}, {}]
    refused = [
        (0, lambda z: z[1:], r"logits: expected \(40, n_heads\) .*\(39, 2\)"),
        (0, lambda z: z.long(), "logits: .* torch.int64"),
        (0, lambda z: z.to("meta"), "logits: expected .* on cpu, got .* on meta"),
    ]

    def draw(self, generator, n_edges, n_segments, n_heads, ordered):
        """Draw logits, and segments of which the last is empty."""
        index = torch.randint(max(1, n_segments), (n_edges,), generator=generator)
        segments = Segments.of(index.sort().values if ordered else index, n_segments + 1)
        logits = torch.randn(n_edges, n_heads, generator=generator, dtype=torch.float64)
        return Call(segment_softmax, weights_by_segment, [5 * logits], [segments])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_large_logits_stay_finite(dtype):
    segments = Segments.of(torch.tensor([0, 0, 2, 2]), 3)
    logits = torch.tensor([[30000.0], [29000], [-30000], [-30000]]).to(dtype)
    weights = segment_softmax(logits, segments)
    assert weights.dtype == torch.float32
    assert weights[:, 0].tolist() == [1, 0, 0.5, 0.5]


def test_what_is_no_number_shows_in_its_segment_alone():
    call = TestSegmentSoftmax().make(n_edges=20)
    (logits,), (segments,) = call.tensors, call.constants
    logits[5, 1] = torch.nan
    broken = segment_softmax(logits, segments).isnan()
    assert torch.equal(broken[:, 1], segments.index == segments.index[5])
    assert not broken[:, 0].any()
