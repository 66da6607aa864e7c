"""Attention over segments: plain PyTorch, numba, and Triton interpreted, compiled and on a GPU.

Oracles: `torch.softmax` of each segment by itself, finite differences.
"""

import pytest
import torch
from hypothesis import strategies as st

from kernels.contract import Call, KernelContract
from pipeline_kernels.eager import EagerOperator
from pipeline_kernels.message import Segments
from pipeline_kernels.message.softmax import segment_softmax, softmax_sum


def sum_by_segment(logits, values, segments):
    """Take each segment by itself."""
    heads = logits.shape[1]
    weights, sums = torch.zeros_like(logits), []
    for s in range(segments.n_segments):
        mask = segments.index == s
        part = torch.softmax(logits[mask], 0)
        weights = weights.masked_scatter(mask[:, None].expand_as(weights), part)
        by_head = values[mask].unflatten(2, (heads, -1)) * part[:, None, :, None]
        sums.append(by_head.sum(0).flatten(1))
    return torch.stack(sums), weights


class Attention(KernelContract):
    """Shared contract of the weights and the sums."""

    folder = "message/softmax"
    tolerances = {torch.float32: 2e-5, torch.float64: 1e-13}
    options = {
        "n_edges": [40, 1],
        "n_segments": [4, 1, 60],
        "shape": [(9, 2, 8), (1, 1, 1), (4, 3, 5), (0, 2, 3), (25, 2, 16)],
        "ordered": [True, False],
    }
    few, many = {"n_edges": 9, "shape": (2, 2, 2)}, {"n_edges": 3000, "n_segments": 60}
    empty = {"n_edges": 0, "n_segments": 0}
    random = {"n_edges": st.integers(0, 60), "n_segments": st.integers(1, 9)}
    interpreted = [{"shape": (4, 3, 5)}, {"shape": (25, 2, 24)}, {"shape": (1, 1, 1)}, empty]
    compiled = [{"ordered": False}, {}]

    @pytest.fixture(autouse=True)
    def leave_out_numba(self, request, monkeypatch):
        """The reference stands in for what cannot be compiled, and numba always can."""
        if "way" in request.fixturenames and request.getfixturevalue("way") == "reference":
            monkeypatch.setattr(EagerOperator, "run", lambda self, args, _: self._init_fn(*args))

    def draw(self, generator, n_edges, n_segments, shape, ordered):
        """Logits, values, and segments of which the last is empty."""
        rows, heads, channels = shape
        index = torch.randint(max(1, n_segments), (n_edges,), generator=generator)
        segments = Segments.of(index.sort().values if ordered else index, n_segments + 1)
        shapes = (n_edges, heads), (n_edges, rows, heads * channels)
        logits, values = (torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes)
        return self.call(5 * logits, values, segments)


class TestSegmentSoftmax(Attention):
    refused = [
        (0, lambda z: z[1:], r"logits: expected \(40, n_heads\) .*\(39, 2\)"),
        (0, lambda z: z.long(), "logits: .* torch.int64"),
        (0, lambda z: z.to("meta"), "logits: expected device cpu"),
    ]

    def call(self, logits, _, segments):
        def weights_by_segment(logits, segments):
            return sum_by_segment(logits, logits.new_zeros(len(logits), 0, 0), segments)[1]

        return Call(segment_softmax, weights_by_segment, [logits], [segments])


class TestSoftmaxSum(Attention):
    without = {"second derivative": "the sums are differentiable once, as documented"}
    refused = [
        *TestSegmentSoftmax.refused,
        (1, lambda v: v[:, :, :3], r"a multiple of 2 heads\), got \(40, 9, 3\)"),
        (1, lambda v: v.long(), "values: expected a dtype"),
    ]

    def call(self, logits, values, segments):
        return Call(softmax_sum, lambda *x: sum_by_segment(*x)[0], [logits, values], [segments])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_large_logits_stay_finite(dtype):
    segments = Segments.of(torch.tensor([0, 0, 2, 2]), 3)
    logits = torch.tensor([[30000.0], [29000], [-30000], [-30000]]).to(dtype)
    weights = segment_softmax(logits, segments)
    assert weights.dtype == torch.float32
    assert weights[:, 0].tolist() == [1, 0, 0.5, 0.5]
    sums = softmax_sum(logits, torch.ones(4, 2, 3, dtype=dtype), segments)
    assert sums.dtype == dtype
    assert sums[:, 0, 0].tolist() == [1, 0, 1]


def test_what_is_no_number_shows_in_its_segment_alone():
    call = TestSoftmaxSum().make(n_edges=20)
    (logits, values), (segments,) = call.tensors, call.constants
    logits[5, 1] = torch.nan
    broken = segment_softmax(logits, segments).isnan()
    assert torch.equal(broken[:, 1], segments.index == segments.index[5])
    assert not broken[:, 0].any()
    assert softmax_sum(logits, values, segments)[segments.index[5], :, 8:].isnan().all()
