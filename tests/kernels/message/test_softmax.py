"""Attention over segments: plain PyTorch, numba, and Triton interpreted, compiled and on a GPU.

Oracles: `torch.softmax` of each segment by itself, finite differences, the formula in float64.
"""

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.library import opcheck
from torch.testing import assert_close

from pipeline_kernels.message import Segments
from pipeline_kernels.message.softmax import op, reference, segment_softmax, softmax_sum

EPSILON = {torch.float32: 2e-5, torch.float64: 1e-13}


def draw_case(n_edges, n_segments, rows, heads, channels, dtype=torch.float64, seed=0):
    """Logits, values, and segments of which the last is empty."""
    generator = torch.Generator().manual_seed(seed)
    index = torch.randint(max(1, n_segments), (n_edges,), generator=generator)
    index = index.sort().values if seed % 2 else index
    logits = 5 * torch.randn(n_edges, heads, generator=generator, dtype=torch.float64)
    shape = n_edges, rows, heads * channels
    values = torch.randn(shape, generator=generator, dtype=torch.float64)
    return logits.to(dtype), values.to(dtype), Segments.of(index, n_segments + 1)


def evaluate_by_segment(logits, values, segments):
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


def close(ours, exact, dtype):
    for result, expected in zip(ours, exact, strict=True):
        assert result.shape == expected.shape
        assert result.dtype == dtype
        size = max(1.0, float(expected.detach().abs().max())) if expected.numel() else 1.0
        assert_close(
            result.detach().double(), expected.detach(), rtol=0, atol=EPSILON[dtype] * size
        )


def differentiate_all(logits, values, segments, g):
    """Sum, weights, and gradients of the sums."""
    z, v = (x.detach().requires_grad_() for x in (logits, values))
    sums = softmax_sum(z, v, segments)
    return [sums, segment_softmax(z, segments), *torch.autograd.grad(sums, (z, v), g)]


def evaluate_in_double(logits, values, segments, g):
    z, v = (x.detach().double().requires_grad_() for x in (logits, values))
    sums, weights = evaluate_by_segment(z, v, segments)
    return [sums, weights, *torch.autograd.grad(sums, (z, v), g.double())]


@settings(deadline=None, max_examples=25)
@given(
    n=st.tuples(st.integers(0, 60), st.integers(1, 9)),
    shape=st.sampled_from([(1, 1, 1), (9, 2, 8), (4, 3, 5), (0, 2, 3), (25, 2, 16)]),
    dtype=st.sampled_from(list(EPSILON)),
    seed=st.integers(0, 2**32),
    threads=st.sampled_from([1, 2]),
)
@example((0, 0), (9, 2, 8), torch.float32, 0, 1)
def test_equals_torch_by_segment(use_threads, n, shape, dtype, seed, threads):
    logits, values, segments = draw_case(*n, *shape, dtype, seed)
    g = torch.randn(segments.n_segments, *values.shape[1:], dtype=dtype)
    with use_threads(threads):
        result = differentiate_all(logits, values, segments, g)
    exact = evaluate_in_double(logits, values, segments, g)
    close(result, exact, dtype)
    weights = reference.softmax(logits, segments.index, segments.n_segments)
    sums = reference.weighted_sum(weights, values, segments.index, segments.n_segments)
    close([sums, weights], exact[:2], dtype)
    lists = segments.index, segments.order, segments.offsets
    close(op._gradient._init_fn(g, weights, values, *lists), exact[2:], dtype)
    assert not result[0][-1].any()


def test_derivatives():
    logits, values, segments = draw_case(9, 3, 2, 2, 2)
    operands = logits.requires_grad_(), values.requires_grad_()
    assert torch.autograd.gradcheck(lambda z, v: softmax_sum(z, v, segments), operands)
    assert torch.autograd.gradcheck(lambda z: segment_softmax(z, segments), operands[:1])
    assert torch.autograd.gradgradcheck(lambda z: segment_softmax(z, segments), operands[:1])


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
    logits, values, segments = draw_case(20, 4, 2, 2, 3)
    logits[5, 1] = torch.nan
    broken = segment_softmax(logits, segments).isnan()
    assert torch.equal(broken[:, 1], segments.index == segments.index[5])
    assert not broken[:, 0].any()
    assert softmax_sum(logits, values, segments)[segments.index[5], :, 3:].isnan().all()


def test_does_not_depend_on_the_threads(use_threads):
    logits, values, segments = draw_case(400, 60, 9, 2, 8, torch.float32)
    g = torch.randn(61, 9, 16)
    results = []
    for threads in (1, 2, 3):
        with use_threads(threads):
            results.append(differentiate_all(logits, values, segments, g))
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_operators_keep_the_rules_of_torch():
    logits, values, segments = draw_case(9, 3, 2, 2, 2)
    lists = segments.index, segments.order, segments.offsets
    operands = logits.requires_grad_(), values.requires_grad_()
    opcheck(op._segment_softmax, (operands[0], *lists))
    opcheck(op._softmax_sum, (*operands, *lists))
    g, weights = torch.randn(4, 2, 4).double(), segment_softmax(logits, segments).detach()
    opcheck(op._gradient, (g, weights, values.detach(), *lists))


@pytest.mark.parametrize(
    ("logits", "values", "message"),
    [
        (torch.zeros(3, 2), torch.zeros(2, 1, 4), r"logits: expected \(2, n_heads\) .*\(3, 2\)"),
        (torch.zeros(2, 2).long(), torch.zeros(2, 1, 4), "logits: .* torch.int64"),
        (torch.zeros(2, 2, device="meta"), torch.zeros(2, 1, 4), "logits: expected device cpu"),
        (torch.zeros(2, 2), torch.zeros(2, 1, 3), r"a multiple of 2 heads\), got \(2, 1, 3\)"),
        (torch.zeros(2, 2), torch.zeros(2, 1, 4).long(), "values: expected a dtype"),
    ],
)
def test_what_does_not_fit_is_named(logits, values, message):
    with pytest.raises(ValueError, match=message):
        softmax_sum(logits, values, Segments.of(torch.tensor([0, 1]), 2))


@pytest.mark.slow
@settings(deadline=None, max_examples=10)
@given(
    n=st.tuples(st.integers(0, 40), st.integers(1, 4)),
    shape=st.sampled_from([(1, 1, 1), (4, 3, 5), (25, 2, 24)]),
    dtype=st.sampled_from(list(EPSILON)),
    seed=st.integers(0, 2**32),
)
def test_interpreted_kernels_equal_torch_by_segment(interpreted, n, shape, dtype, seed):
    from pipeline_kernels.message.softmax import cuda

    logits, values, segments = draw_case(*n, *shape, dtype, seed)
    g = torch.randn(segments.n_segments, *values.shape[1:], dtype=dtype)
    lists = segments.order, segments.offsets
    weights = interpreted(cuda.softmax, logits, segments.index, *lists)
    sums = interpreted(cuda.weighted_sum, weights, values, *lists)
    operands = g, weights, values, segments.index
    grads = interpreted(cuda.gradient, *operands, *lists)
    close([sums, weights, *grads], evaluate_in_double(logits, values, segments, g), dtype)


@pytest.mark.slow
@pytest.mark.parametrize(("capability", "dtype"), [(80, "fp64"), (90, "fp32")])
def test_kernels_compile_for_a_gpu(capability, dtype, monkeypatch, tmp_path):
    """The interpreter accepts more than the compiler, which needs no GPU to say so."""
    pytest.importorskip("triton")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    from triton import compile as triton_compile
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from pipeline_kernels.message.softmax import cuda

    p, index = f"*{dtype}", "*i64"
    sizes = {"ROWS": cuda.ROWS, "BLOCK": 32}
    numbers = dict.fromkeys(["heads", "size", "width", "rows", "channels"], "i32")
    common = {"order": index, "offsets": index, **numbers, **dict.fromkeys(sizes, "constexpr")}
    pair = {"operands": (p, p), "lists": (index, index)}
    for kernel, signature, constants in [
        (cuda._softmax, {"weights": p, "logits": p}, {}),
        (cuda._softmax, {"weights": p, "logits": p, "order": "constexpr"}, {"order": None}),
        (cuda._differentiate_softmax, dict.fromkeys(["by_logits", "weights", "by_weights"], p), {}),
        (cuda._weighted_sum, {"sums": p, **pair}, {}),
        (cuda._differentiate_element, {"results": (p, p), "operands": (p, p, p, index)}, {}),
    ]:
        names = kernel.arg_names
        source = ASTSource(
            kernel,
            signature={name: {**common, **signature}[name] for name in names},
            constexprs={k: v for k, v in {**sizes, **constants}.items() if k in names},
        )
        assert triton_compile(source, target=GPUTarget("cuda", capability, 32)).asm["cubin"]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", EPSILON)
def test_gpu_equals_torch_by_segment(dtype):
    if not torch.cuda.is_available():
        pytest.skip("no NVIDIA GPU")
    logits, values, segments = draw_case(3000, 50, 25, 2, 16, dtype)
    g = torch.randn(51, 25, 32, dtype=dtype)
    on_gpu = [x.cuda() for x in (logits, values)], segments.to("cuda"), g.cuda()
    result = differentiate_all(*on_gpu[0], *on_gpu[1:])
    close([x.cpu() for x in result], evaluate_in_double(logits, values, segments, g), dtype)
