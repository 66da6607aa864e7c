"""The Triton kernels: interpreted, compiled for GPUs that need not be there, and on a GPU.

Oracle: torch's `einsum` (the reference) and autograd through it, in float64. An error is measured
by what the same sums give with every number taken by its magnitude, which is how roundings add up.
"""

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline_kernels.tree import Node, TreeShape, contract, reference

DTYPES = [torch.float32, torch.float64]
HONO = TreeShape(
    (10,) * 6, (Node(0, 1, 10), Node(6, 2, 10), Node(3, 4, 10), Node(8, 5, 10), Node(7, 9, 1))
)
PAIR = TreeShape((3, 5), (Node(1, 0, 1),))
WIDE = TreeShape((2, 17, 1), (Node(2, 1, 18), Node(3, 0, 1)))


@st.composite
def trees(draw, n_leaves):
    """Join two slots, drawn at random, until one is left."""
    n = draw(n_leaves)
    ranks = st.integers(1, 5 if n <= 6 else 2)
    slots, nodes = list(range(n)), []
    while len(slots) > 1:
        left, right = (slots.pop(draw(st.integers(0, len(slots) - 1))) for _ in range(2))
        slots.append(n + len(nodes))
        nodes.append(Node(left, right, draw(ranks) if len(slots) > 1 else 1))
    return TreeShape(tuple(draw(ranks) for _ in range(n)), tuple(nodes))


def draw_case(shape, n, dtype, device="cpu"):
    """Features, transfers and weights of samples."""
    generator = torch.Generator().manual_seed(n)
    sizes = [(shape.n_features, n), (shape.n_transfers,), (n,)]
    return [torch.randn(s, generator=generator, dtype=dtype).to(device) for s in sizes]


def evaluate_exactly(shape, features, transfers, weights):
    """Value, inner values, and derivatives by features and transfers."""
    x, B = (t.double().detach().requires_grad_() for t in (features, transfers))
    value, inner = reference.contract(x, B, shape)
    grads = torch.autograd.grad((weights.double() * value).sum(), (x, B))
    return value.detach(), inner.detach(), *grads


def check(ours, shape, case):
    expected, magnitudes = (
        evaluate_exactly(shape, *case),
        evaluate_exactly(shape, *(t.abs() for t in case)),
    )
    tolerance = 64 * torch.finfo(case[0].dtype).eps  # 8e-6 or 1e-14
    for result, value, magnitude in zip(ours, expected, magnitudes, strict=True):
        assert result.shape == value.shape
        assert result.dtype == case[0].dtype
        assert ((result - value).abs() <= tolerance * magnitude).all()


@pytest.mark.slow
@settings(deadline=None, max_examples=12)
@given(
    shape=st.one_of(trees(st.integers(2, 6)), trees(st.integers(2, 6)), trees(st.integers(7, 12))),
    n=st.sampled_from([0, 1, 5, 32, 33, 70]),
    dtype=st.sampled_from(DTYPES),
)
@example(HONO, 5, torch.float32)
@example(WIDE, 250, torch.float32)
@example(PAIR, 500, torch.float64)  # more samples and programs than run at a time
def test_interpreted_kernels_equal_the_reference(interpreted, shape, n, dtype):
    from pipeline_kernels.tree import cuda

    features, transfers, weights = case = draw_case(shape, n, dtype)
    code = shape.encode()
    value, inner = interpreted(cuda.contract, features, transfers, code)
    arguments = (features, transfers, inner, weights, code)
    by_features, by_transfers = interpreted(cuda.gradient, *arguments, True)
    check((value, inner, by_features, by_transfers), shape, case)
    nothing, again = interpreted(cuda.gradient, *arguments, False)
    assert nothing.numel() == 0
    assert torch.equal(again, by_transfers)


def test_interpreted_kernels_take_any_layout(interpreted):
    from pipeline_kernels.tree import cuda

    features, transfers, weights = draw_case(PAIR, 7, torch.float64)
    features, weights = features.T.contiguous().T, weights[:1].expand(7)
    value, inner = interpreted(cuda.contract, features, transfers, PAIR.encode())
    arguments = (features, transfers, inner, weights, PAIR.encode(), True)
    ours = (value, inner, *interpreted(cuda.gradient, *arguments))
    check(ours, PAIR, (features, transfers, weights))


@pytest.mark.parametrize(
    "shape",
    [
        TreeShape((33, 2), (Node(0, 1, 1),)),
        TreeShape((1,) * 33, (Node(0, 1, 1), *(Node(i + 32, i + 1, 1) for i in range(1, 32)))),
    ],
    ids=["rank", "leaves"],
)
def test_trees_beyond_the_kernels_are_left_to_the_reference(shape):
    pytest.importorskip("triton")
    from pipeline_kernels.tree import cuda

    features, transfers, weights = case = draw_case(shape, 4, torch.float64)
    value, inner = cuda.contract(features, transfers, shape.encode())
    grads = cuda.gradient(features, transfers, inner, weights, shape.encode(), True)
    check((value, inner, *grads), shape, case)


@pytest.mark.slow
@pytest.mark.parametrize(("capability", "dtype"), [(80, torch.float64), (90, torch.float32)])
def test_kernels_compile_for_a_gpu(compiled, capability, dtype):
    from pipeline_kernels.tree import cuda

    p = {torch.float32: "*fp32", torch.float64: "*fp64"}[dtype]
    tree = {"n": "i64", "SHAPE": "constexpr", "BLOCK": "constexpr"}
    contraction = {"value": p, "u": (p, p), "transfers": p, **tree}
    gradient = {"g": (p, p, p), "sums": (p, p, "*i32", "i32"), "u": (p, p), "transfers": p, **tree}
    sizes = {"SHAPE": HONO, "BLOCK": cuda.BLOCK}
    for kernel, signature, constants in [
        (cuda._contract, contraction, sizes),
        (cuda._gradient, gradient, sizes),
        (cuda._gradient, {**gradient, "g": ("constexpr", p, p)}, {**sizes, (0, 0): None}),
    ]:
        made = compiled(
            capability, kernel, signature, constants, num_warps=cuda._choose_warps(HONO, dtype)
        )
        assert made["cubin"]
        assert "tf32" not in made["ptx"]  # products in full precision


def evaluate_with_gradients(shape, features, transfers, weights):
    x, B = features.clone().requires_grad_(), transfers.clone().requires_grad_()
    value = contract(x, B, shape)
    return value.detach(), *torch.autograd.grad(value, (x, B), weights)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 1000, 10_001, 100_000])
@pytest.mark.parametrize("shape", [HONO, PAIR, WIDE], ids=["HONO", "PAIR", "WIDE"])
def test_gpu_equals_the_reference(gpu, shape, n, dtype):
    case = draw_case(shape, n, dtype, gpu)
    value, *grads = evaluate_with_gradients(shape, *case)
    _, inner = torch.ops.pipeline_kernels.tree_contract(*case[:2], shape.encode())
    check((value, inner, *grads), shape, case)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1000, 10_001, 100_000])
def test_gpu_repeats_every_bit(gpu, n, dtype):
    """The programs finish in another order each time."""
    case = draw_case(HONO, n, dtype, gpu)
    first = evaluate_with_gradients(HONO, *case)
    for _ in range(20):
        for once, again in zip(first, evaluate_with_gradients(HONO, *case), strict=True):
            assert torch.equal(once, again)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_gpu_replays_a_captured_epoch(gpu, dtype):
    """Oracle: the same epochs of AdamW, launched one by one."""
    features, transfers, targets = draw_case(HONO, 10_001, dtype, gpu)

    def training():
        parameter = torch.nn.Parameter(transfers.clone())
        optimizer = torch.optim.AdamW([parameter], lr=1e-2, capturable=True)

        def epoch():
            optimizer.zero_grad(set_to_none=True)
            (contract(features, parameter, HONO) - targets).square().mean().backward()
            optimizer.step()

        return parameter, epoch

    stepwise, epoch = training()
    for _ in range(3 + 10):
        epoch()
    replayed, epoch = training()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):  # compiles, and makes the optimizer's state
            epoch()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        epoch()
    for _ in range(10):
        graph.replay()
    assert not torch.equal(stepwise, transfers)
    assert torch.equal(replayed, stepwise)
