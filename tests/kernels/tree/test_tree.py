"""The contraction of a tree: C, the reference where there is none, and Triton.

Oracles: PyTorch's automatic differentiation of the formula in plain PyTorch (`reference.contract`),
finite differences.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import strategies as st
from torch.testing import assert_close

from kernels.contract import Call, KernelContract
from pipeline_kernels.tree import Linear, Node, TreeShape, contract, reference


@st.composite
def draw_trees(draw):
    """Any tree: pairs of what has no parent yet get one."""
    d = draw(st.integers(2, 12))
    ranks = st.integers(1, 40 if d < 4 else 14)
    open_slots, nodes = list(range(d)), []
    while len(open_slots) > 1:
        left = open_slots.pop(draw(st.integers(0, len(open_slots) - 1)))
        right = open_slots.pop(draw(st.integers(0, len(open_slots) - 1)))
        nodes.append(Node(left, right, draw(ranks) if open_slots else 1))
        open_slots.append(d + len(nodes) - 1)
    return TreeShape(tuple(draw(ranks) for _ in range(d)), tuple(nodes))


def build_balanced(leaf_ranks, rank):
    """The dimensions halved again and again, the left half not the smaller."""
    nodes = []

    def build(dims):
        if len(dims) == 1:
            return dims[0]
        half = -(-len(dims) // 2)
        left, right = build(dims[:half]), build(dims[half:])
        nodes.append(Node(left, right, rank if len(dims) < len(leaf_ranks) else 1))
        return len(leaf_ranks) + len(nodes) - 1

    build(list(range(len(leaf_ranks))))
    return TreeShape(tuple(leaf_ranks), tuple(nodes))


TREES = {
    "balanced": build_balanced((3, 2, 5, 4), 10),
    "HONO": TreeShape(
        (10,) * 6, (Node(0, 1, 10), Node(6, 2, 10), Node(3, 4, 10), Node(8, 5, 10), Node(7, 9, 1))
    ),
    "pair": TreeShape((3, 5), (Node(1, 0, 1),)),
    "wide": TreeShape((2, 17, 1), (Node(2, 1, 18), Node(3, 0, 1))),
    "odd": build_balanced((3, 7, 13, 4), 9),
    "small": build_balanced((2, 3, 1, 2), 2),
    "ranks": TreeShape((33, 2), (Node(0, 1, 1),)),  # beyond the kernels of Triton
    "leaves": TreeShape(
        (1,) * 33, (Node(0, 1, 1), *(Node(i + 32, i + 1, 1) for i in range(1, 32)))
    ),
}


class TestTree(KernelContract):
    folder = "tree"
    tolerances = {torch.float32: 2e-5, torch.float64: 1e-13}
    options = {"tree": list(TREES), "n": [40, 1, 256, 2 * 512 + 1, 3000]}
    few, many = {"tree": "small", "n": 3}, {"n": 9001}
    empty = {"n": 0}
    random = {"tree": draw_trees(), "n": st.integers(0, 700)}
    kernel_order, mixed = 1, 0.05
    lanes = [{"tree": "odd", "n": 301}]
    interpreted = [
        {"tree": "wide", "n": 250},
        {"tree": "HONO", "n": 5},
        {"tree": "pair", "n": 500},  # more samples and programs than run at a time
        {"tree": "pair", "n": 33},
        {"tree": "ranks"},
        {"tree": "leaves"},
        empty,
    ]
    compiled = [{"tree": "wide"}, {"tree": "HONO"}]
    refused = [
        (0, lambda features: features.float(), "transfers: expected .* of torch.float32"),
        (0, lambda features: features[1:], r"features: expected \(14, n\)"),
        (1, lambda transfers: transfers[1:], r"transfers: expected \(\d+,\)"),
        (1, lambda transfers: transfers.to("meta"), "transfers: expected .* on meta"),
    ]

    def check_compiled(self, made):
        """Expect products in full precision."""
        assert "tf32" not in made["ptx"]

    def draw(self, generator, tree, n):
        """Numbers whose products at all nodes stay near one, so that float32 holds them."""
        shape = TREES.get(tree, tree)

        def random(*sizes):
            return torch.rand(*sizes, generator=generator, dtype=torch.float64)

        parts = [random(*sizes) * 4 / (sizes[0] * sizes[1]) for sizes in shape.tensor_shapes]
        tensors = random(shape.n_features, n), torch.cat([part.flatten() for part in parts])
        return Call(contract, lambda *x: reference.contract(*x)[0], tensors, [shape])


@pytest.mark.parametrize("dtype", TestTree.tolerances)
def test_linear_map_equals_automatic_differentiation(implementation, dtype):
    """Positive numbers, so that no sum loses digits and each entry can be compared."""
    call = TestTree().make(dtype)
    (features, transfers), (shape,) = call.tensors, call.constants
    linear = Linear(features, transfers.requires_grad_(), shape)
    expected = reference.contract(features, transfers, shape)[0]
    weights, direction = torch.rand(40, dtype=dtype), torch.rand(len(transfers), dtype=dtype)
    (gradient,) = torch.autograd.grad(expected, transfers, weights)
    _, change = torch.autograd.functional.jvp(
        lambda B: reference.contract(features, B, shape)[0], transfers, direction
    )
    ours = linear.value, linear.gradient(weights), linear.tangent(direction)
    for result, exact in zip(ours, (expected, gradient, change), strict=True):
        assert_close(result, exact, rtol=TestTree.tolerances[dtype], atol=0)


def test_every_size_of_a_tile(implementation):
    for rank in range(1, 28):
        tree = TreeShape((rank, 3, 2), (Node(0, 1, rank), Node(2, 3, 1)))
        call = TestTree().make(tree=tree)
        TestTree().check(TestTree().differentiate(call, torch.float64), call, torch.float64)


def test_calls_from_many_threads_do_not_meet(use_threads):
    trees = [build_balanced((3, 4, 5), rank) for rank in range(1, 9)]
    calls = [TestTree().make(tree=tree, n=3000) for tree in trees]
    with use_threads(2), ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda call: contract(*call.tensors, *call.constants), calls * 4))
    for call, value in zip(calls * 4, results, strict=True):
        assert_close(value, call.reference(*call.tensors, *call.constants))


def test_infinity_stays_with_its_sample(implementation):
    call = TestTree().make()
    call.tensors[0][0, 7] = torch.inf
    value = contract(*call.tensors, *call.constants)
    assert value.isfinite().logical_not().nonzero().tolist() == [[7]]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", TestTree.tolerances)
def test_gpu_replays_a_captured_epoch(gpu, dtype):
    """Oracle: the same epochs of AdamW, launched one by one."""
    shape = TREES["HONO"]
    features, transfers = TestTree().make(dtype, tree="HONO", n=10_001).to(gpu).tensors
    targets = torch.rand(10_001, dtype=dtype, device=gpu)

    def training():
        parameter = torch.nn.Parameter(transfers.clone())
        optimizer = torch.optim.AdamW([parameter], lr=1e-2, capturable=True)

        def epoch():
            optimizer.zero_grad(set_to_none=True)
            (contract(features, parameter, shape) - targets).square().mean().backward()
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
