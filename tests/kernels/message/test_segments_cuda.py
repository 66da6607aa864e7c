"""The Triton kernels: interpreted, compiled for GPUs that need not be there, and on a GPU.

Oracle: the reference in float64 (torch's own `index_select` and `index_add`).
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from pipeline_kernels.message.segments import Segments, gather_sum, reference, segment_sum

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


def close(ours, exact):
    """Compares with the exact result to within a few roundings of our type."""
    tolerance = 4 * torch.finfo(ours.dtype).eps
    assert_close(ours.cpu(), exact.to(ours.dtype), rtol=tolerance, atol=4 * tolerance)


def draw_case(seed, n_edges, n_rows, features, dtype):
    generator = torch.Generator().manual_seed(seed)
    plans = [Segments.of(torch.randint(n, (n_edges,), generator=generator), n) for n in n_rows]
    plans[0] = Segments.of(plans[0].index.sort().values, n_rows[0])
    tables = [torch.randn(n, *features, generator=generator).to(dtype) for n in n_rows]
    return tables, plans, torch.randn(n_edges, *features, generator=generator).to(dtype)


def evaluate_exactly(tables, plans, values):
    h = reference.gather_sum([t.double() for t in tables], [p.index for p in plans])
    sums = [reference.segment_sum(values.double(), p.index, p.n_segments) for p in plans]
    return h, sums


@pytest.mark.slow
@settings(deadline=None, max_examples=30)
@given(
    seed=st.integers(0, 2**32),
    n_edges=st.integers(0, 80),
    n_rows=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    features=st.sampled_from([(), (3,), (64,), (130,), (5, 5), (0,)]),
    dtype=st.sampled_from(DTYPES),
)
def test_interpreted_kernels_equal_the_reference(
    interpreted, seed, n_edges, n_rows, features, dtype
):
    from pipeline_kernels.message.segments import cuda

    tables, plans, values = draw_case(seed, n_edges, n_rows, features, dtype)
    h, sums = evaluate_exactly(tables, plans, values)
    lists = ([getattr(plan, name) for plan in plans] for name in ("index", "order", "offsets"))
    close(interpreted(cuda.gather_sum, tables, *lists), h)
    for plan, expected in zip(plans, sums, strict=True):
        close(interpreted(cuda.segment_sum, values, plan.index, plan.order, plan.offsets), expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("capability", "dtype"), [(80, "fp64"), (90, "fp32"), (80, "bf16"), (90, "fp16")]
)
def test_kernels_compile_for_a_gpu(capability, dtype, monkeypatch, tmp_path):
    """The interpreter accepts more than the compiler, which needs no GPU to say so."""
    pytest.importorskip("triton")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    from triton import compile as triton_compile
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from pipeline_kernels.message.segments import cuda

    value, index = f"*{dtype}", "*i64"
    accumulator = cuda._choose_accumulator(torch.float64 if dtype == "fp64" else torch.float32)
    sizes = {"ACCUMULATOR": accumulator, "ROWS": 8, "COLUMNS": 128}
    counts = {"n_elements": "i32", "width": "i32", **dict.fromkeys(sizes, "constexpr")}
    gather = {"out": value, "tables": (value,) * 3, "indices": (index,) * 3, **counts}
    segment = {"out": value, "values": value, "order": index, "offsets": index, **counts}
    del segment["n_elements"]
    for kernel, signature, constants in [
        (cuda._gather_sum, gather, sizes),
        (cuda._segment_sum, segment, sizes),
        (cuda._segment_sum, {**segment, "order": "constexpr"}, {**sizes, "order": None}),
    ]:
        source = ASTSource(kernel, signature=signature, constexprs=constants)
        assert triton_compile(source, target=GPUTarget("cuda", capability, 32)).asm["cubin"]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("features", [(), (3,), (64,), (200,)])
def test_gpu_equals_the_reference(dtype, features):
    if not torch.cuda.is_available():
        pytest.skip("no NVIDIA GPU")
    tables, plans, values = draw_case(0, 20_000, [300, 500, 7000], features, dtype)
    h, sums = evaluate_exactly(tables, plans, values)
    tables = [table.cuda().requires_grad_() for table in tables]
    plans = [Segments.of(plan.index.cuda(), plan.n_segments) for plan in plans]
    ours = gather_sum(tables, plans)
    close(ours, h)
    grads = torch.autograd.grad(ours, tables, values.cuda())
    for grad, plan, expected in zip(grads, plans, sums, strict=True):
        close(grad, expected)
        assert torch.equal(grad, segment_sum(values.cuda(), plan))  # the same bits once more
