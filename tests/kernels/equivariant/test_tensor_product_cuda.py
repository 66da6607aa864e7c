"""The Triton kernels: interpreted, compiled for GPUs that need not be there, and on a GPU.

Oracle: the formula in plain PyTorch (`reference`), in float64.
"""

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline_kernels.equivariant.tensor_product import ProductPlan, reference, tensor_product
from pipeline_kernels.message import Segments

DTYPES = [torch.float32, torch.float64]
FIRST = ProductPlan.of("0e", 3, "0e + 1o + 2e + 3o")
SECOND = ProductPlan.of("0e + 1o", 3, "0e + 1o + 2e + 3o")
PLANS = [FIRST, SECOND, ProductPlan.of("1o + 0o + 2e", 2, "1e + 0o"), ProductPlan.of("1o", 0, "1o")]
SMALL = ProductPlan.of("0e + 1o", 2, "1o + 2e")  # fewer paths, compiled sooner
EVERYTHING = [True, True, True]


def draw_case(plan, n_nodes, n_edges, channels, dtype, seed=0, device="cpu"):
    """Operands g, h, Y and w, and senders and receivers of a graph whose last node is alone."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [
        (n_nodes + 1, plan.dim_out, channels),
        (n_nodes, plan.dim_in, channels),
        (n_edges, plan.dim_sh),
        (n_edges, plan.n_paths, channels),
    ]
    operands = [torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes]
    senders, receivers = torch.randint(max(1, n_nodes), (2, n_edges), generator=generator)
    ends = [Segments.of(senders, n_nodes), Segments.of(receivers.sort().values, n_nodes + 1)]
    return [x.to(device) for x in operands], [part.to(device) for part in ends]


def make_lists(ends):
    return [x for part in ends for x in (part.index, part.order, part.offsets)]


def check(result, plan, operands, ends):
    """Compare with the exact result by the largest number in it, which sums of any order reach."""
    g, h, Y, w = (x.double() for x in operands)
    pair = ends[0].index, ends[1].index
    exact = [reference.product(h, Y, w, pair, ends[1].n_segments, plan)]
    exact += reference.gradient(g, h, Y, w, pair, plan)
    for ours, theirs in zip(result, exact, strict=True):
        assert ours.shape == theirs.shape
        assert ours.dtype == operands[0].dtype
        size = theirs.abs().max() if theirs.numel() else 0
        tolerance = 50 * torch.finfo(ours.dtype).eps * size
        assert bool(((ours - theirs).abs() <= tolerance).all())


@pytest.mark.slow
@settings(deadline=None, max_examples=6)
@given(
    plan=st.sampled_from(PLANS),
    sizes=st.tuples(st.integers(1, 4), st.integers(0, 4), st.sampled_from([0, 1, 5, 130])),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 2**32),
)
@example(SECOND, (0, 0, 4), torch.float32, 0)
@example(SECOND, (3, 0, 4), torch.float32, 0)
def test_interpreted_kernels_equal_the_formula(interpreted, plan, sizes, dtype, seed):
    from pipeline_kernels.equivariant.tensor_product import cuda

    operands, ends = draw_case(plan, *sizes, dtype, seed)
    code = plan.encode()
    out = interpreted(cuda.product, *operands[1:], make_lists(ends), code)
    grads = interpreted(cuda.gradient, operands, make_lists(ends), code, EVERYTHING)
    check([out, *grads], plan, operands, ends)


@pytest.mark.slow
@pytest.mark.parametrize(
    "wanted", [(True, False, False), (False, True, False), (False, False, True)]
)
def test_interpreted_kernels_leave_out_what_is_not_wanted(interpreted, wanted):
    from pipeline_kernels.equivariant.tensor_product import cuda

    operands, ends = draw_case(SECOND, 3, 5, 8, torch.float64)
    arguments = (operands, make_lists(ends), SECOND.encode())
    full = interpreted(cuda.gradient, *arguments, EVERYTHING)
    part = interpreted(cuda.gradient, *arguments, wanted)
    for want, some, whole in zip(wanted, part, full, strict=True):
        assert torch.equal(some, whole if want else whole.new_empty((0,) * whole.ndim))


@pytest.mark.slow
@pytest.mark.parametrize(("capability", "dtype"), [(80, "fp64"), (90, "fp32")])
def test_kernels_compile_for_a_gpu(compiled, capability, dtype):
    from pipeline_kernels.equivariant.tensor_product import cuda

    p, index = f"*{dtype}", "*i64"
    common = {"C": p, "channels": "i64", "PLAN": "constexpr", "BLOCK": "constexpr"}
    graph = {"operands": (p, p, p), "edges": (index, "constexpr", index), **common}
    edge = {"results": (p, p), "operands": (p, p, p, p), "ends": (index, index), **common}
    sizes = {"PLAN": SMALL, "BLOCK": cuda.MAX_BLOCK}
    for kernel, signature, constants in [
        (cuda._product, {"out": p, **graph}, {(3, 1): None}),
        (cuda._product, {"out": p, **graph, "edges": (index,) * 3}, {}),
        (cuda._gradient_by_sender, {"by_h": p, **graph, "edges": (index,) * 3}, {}),
        (cuda._gradient_by_edge, edge, {}),
        (cuda._gradient_by_edge, {**edge, "results": (p, "constexpr")}, {(0, 1): None}),
    ]:
        assert compiled(capability, kernel, signature, {**sizes, **constants})["cubin"]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("plan", PLANS, ids=["first layer", "second layer", "odd", "one path"])
@pytest.mark.parametrize("sizes", [(1, 1, 3), (30, 700, 128), (405, 10_800, 100)])
def test_gpu_equals_the_formula(gpu, plan, sizes, dtype):
    operands, ends = draw_case(plan, *sizes, dtype, device=gpu)
    g, *leaves = [x.requires_grad_() for x in operands]
    out = tensor_product(*leaves, *ends, plan)
    grads = torch.autograd.grad(out, leaves, g)
    check([out, *grads], plan, operands, ends)
    again = tensor_product(*leaves, *ends, plan)
    assert torch.equal(out, again)
    for once, twice in zip(grads, torch.autograd.grad(again, leaves, g), strict=True):
        assert torch.equal(once, twice)
