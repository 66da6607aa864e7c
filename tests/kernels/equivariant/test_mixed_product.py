"""The tensor product whose weights are mapped from features that edges share.

Oracle: autograd of the formula in plain PyTorch and float64; `tensor_product`, which equals e3nn's.
"""

import json

import pytest
import torch
from torch.library import opcheck
from torch.testing import assert_close

from pipeline_kernels.compiler import LEVELS
from pipeline_kernels.equivariant.mixed_product import (
    Graph,
    cpu,
    mix_weights,
    mixed_product,
    reference,
)
from pipeline_kernels.equivariant.mixed_product.op import _gradient, _mix, _product, _tangents
from pipeline_kernels.equivariant.tensor_product import ProductPlan, tensor_product
from pipeline_kernels.equivariant.tensor_product import cpu as one_by_one
from pipeline_kernels.message import Segments
from processes import finish

PLANS = {
    "first layer": ProductPlan.of("0e", 3, "0e + 1o + 2e + 3o"),
    "next layer": ProductPlan.of("0e + 1o", 3, "0e + 1o + 2e + 3o"),
    "high degrees": ProductPlan.of("1o + 0o + 2e", 4, "1e + 0o + 4o"),
}
K = 5


@pytest.fixture(params=["C", "reference"])
def implementation(request, use_implementation):
    """Everything in the test is calculated by C, then as without a compiler."""
    with use_implementation(request.param):
        one_by_one._load.cache_clear()
        yield
    one_by_one._load.cache_clear()


def draw_graph(n_nodes, n_pairs, n_alone=2, seed=0):
    """Return edges of pairs and edges alone, in any order; two nodes receive nothing."""
    generator = torch.Generator().manual_seed(seed)
    ends = torch.randint(max(1, n_nodes), (2, n_pairs + n_alone), generator=generator)
    both = torch.cat([ends, ends[:, :n_pairs].flip(0)], 1)
    row = torch.cat([torch.arange(n_pairs + n_alone), torch.arange(n_pairs)])
    order = torch.randperm(len(row), generator=generator)
    senders, receivers = both[:, order]
    return Graph.of(
        Segments.of(senders, n_nodes),
        Segments.of(receivers, n_nodes + 2),
        Segments.of(row[order], n_pairs + n_alone),
    )


def draw(plan, graph, channels, dtype=torch.float64):
    """Return g, h, Y, x and A, and directions of h, Y and x."""
    generator = torch.Generator().manual_seed(1)

    def normal(*shape):
        return torch.randn(shape, generator=generator, dtype=dtype)

    h = graph.senders.n_segments, plan.dim_in, channels
    Y, x = (graph.senders.n_elements, plan.dim_sh), (graph.rows.n_segments, K)
    g = graph.receivers.n_segments, plan.dim_out, channels
    operands = [normal(*g), normal(*h), normal(*Y), normal(*x), normal(K, plan.n_paths * channels)]
    return operands, [normal(*shape) for shape in (h, Y, x)]


def multiply_all(h, Y, x, A, graph, plan):
    w = (x @ A)[graph.rows.index].unflatten(1, (plan.n_paths, h.shape[2]))
    return tensor_product(h, Y, w, graph.senders, graph.receivers, plan)


def compare(actual, expected, dtype):
    for one, other in zip(actual, expected, strict=True):
        assert one.dtype == dtype
        scale = float(other.detach().abs().max()) if other.numel() else 1
        atol = (1e-5 if dtype == torch.float32 else 1e-12) * max(1, scale)
        assert_close(one.double(), other.detach(), rtol=0, atol=atol)


@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("channels", [1, 32, 35])
@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_values_and_derivatives(plan, channels, dtype):
    check(plan, channels, dtype)


def check(plan, channels, dtype):
    graph = draw_graph(7, 60)
    operands, directions = draw(plan, graph, channels, dtype)
    g, *inputs = (t.double().requires_grad_() for t in operands)
    exact = reference.product(*inputs, graph, plan)
    first = torch.autograd.grad(exact, inputs, g, create_graph=True)
    moves = [t.double() for t in directions]
    moving = torch.autograd.grad(first[:3], [g, inputs[0], *inputs[2:]], moves)
    edges, code = graph.encode(), plan.encode()
    w = mix_weights(*operands[3:])
    for kept in (w, w.new_empty(0)):
        compare([_product(*operands[1:], kept, edges, code)], [exact], dtype)
        compare(_gradient(operands, kept, edges, code, [True] * 4), first, dtype)
        by_h, nothing, by_x, _ = _gradient(operands, kept, edges, code, [True, False, True, False])
        assert nothing.numel() == 0
        compare([by_h, by_x], [first[0], first[2]], dtype)
        compare(_tangents(operands, directions, kept, edges, code), moving, dtype)


@pytest.mark.parametrize("level", LEVELS)
def test_processors_with_shorter_vectors(use_level, level):
    with use_level(level):
        one_by_one._load.cache_clear()
        check(PLANS["next layer"], 21, torch.float32)
    one_by_one._load.cache_clear()


def learn(function, operands, graph, moving, learned):
    """Return sums, their derivatives by what moves, and of these by what is learned."""
    plan, inputs = PLANS["next layer"], [t.clone().requires_grad_() for t in operands]
    out = function(*inputs, graph, plan)
    first = torch.autograd.grad(out.sin().sum(), [inputs[i] for i in moving], create_graph=True)
    loss = out.square().sum() + sum(part.square().sum() for part in first)
    return [out, *first, *torch.autograd.grad(loss, [inputs[i] for i in learned])]


@pytest.mark.parametrize(
    ("moving", "learned"),
    [((1, 2), (0, 3)), ((0, 1, 2), (0, 2, 3)), ((0, 3), (1, 2, 3)), ((0, 1, 2, 3), (0, 1, 2, 3))],
    ids=["first layer", "next layer", "features and map", "all"],
)
@pytest.mark.parametrize("edges_of_a_part", [1, 7, 1000])
def test_a_training(monkeypatch, edges_of_a_part, moving, learned):
    """Oracle: `tensor_product` with the weights of each edge."""
    graph = draw_graph(5, 40)
    (_, *operands), _ = draw(PLANS["next layer"], graph, 3)
    monkeypatch.setattr(cpu, "PART_BYTES", edges_of_a_part * operands[0][0].numel() * 8)
    ours, theirs = (
        learn(function, operands, graph, moving, learned)
        for function in (mixed_product, multiply_all)
    )
    for one, other in zip(ours, theirs, strict=True):
        assert_close(one, other, rtol=1e-12, atol=1e-10)


@pytest.mark.parametrize(("n_pairs", "n_alone"), [(0, 0), (0, 1), (1, 0)])
def test_few_edges(n_pairs, n_alone):
    graph = draw_graph(5, n_pairs, n_alone)
    (_, *operands), _ = draw(PLANS["next layer"], graph, 3)
    case = operands, graph, (0, 1, 2), (0, 3)
    for one, other in zip(learn(mixed_product, *case), learn(multiply_all, *case), strict=True):
        assert_close(one, other)


@pytest.mark.parametrize("n_sharing", [1, 2, 100])
def test_any_number_of_edges_may_share_weights(n_sharing):
    generator = torch.Generator().manual_seed(0)
    rows, n = Segments.of(torch.arange(3).repeat(n_sharing), 3), 3 * n_sharing
    senders, receivers = torch.randint(4, (2, n), generator=generator)
    graph = Graph.of(Segments.of(senders, 4), Segments.of(receivers, 4), rows)
    (_, *operands), _ = draw(PLANS["next layer"], graph, 16)
    case = operands, graph, (0, 1, 2), (0, 3)
    for one, other in zip(learn(mixed_product, *case), learn(multiply_all, *case), strict=True):
        assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_weights_that_no_edge_has():
    full = draw_graph(5, 40)
    rows = Segments.of(3 * full.rows.index + 1, 3 * full.rows.n_segments)
    graph = Graph.of(full.senders, full.receivers, rows)
    (_, *operands), _ = draw(PLANS["next layer"], graph, 16)
    case = operands, graph, (0, 1, 2), (0, 2, 3)
    for one, other in zip(learn(mixed_product, *case), learn(multiply_all, *case), strict=True):
        assert_close(one, other, rtol=1e-12, atol=1e-10)


def test_edges_with_weights_of_their_own():
    shared = draw_graph(5, 40)
    graph = Graph.unshared(shared.senders, shared.receivers)
    (_, *operands), _ = draw(PLANS["next layer"], graph, 3)
    case = operands, graph, (0, 1, 2), (0, 3)
    for one, other in zip(learn(mixed_product, *case), learn(multiply_all, *case), strict=True):
        assert_close(one, other, rtol=1e-12, atol=1e-10)


def test_third_derivatives():
    """By finite differences of the second, which the other tests hold."""
    graph = draw_graph(3, 2, 1)
    (_, *operands), _ = draw(PLANS["next layer"], graph, 1)
    inputs = [t.requires_grad_() for t in operands]

    def differentiate(*inputs):
        out = mixed_product(*inputs, graph, PLANS["next layer"])
        return torch.autograd.grad(out.sin().sum(), inputs, create_graph=True)

    assert torch.autograd.gradgradcheck(differentiate, inputs, check_undefined_grad=False)


def test_sums_do_not_depend_on_threads():
    graph, plan = draw_graph(40, 900), PLANS["next layer"]
    operands, directions = draw(plan, graph, 32, torch.float32)
    results, n_threads = [], torch.get_num_threads()
    try:
        for number in (1, 3):
            torch.set_num_threads(number)
            w = mix_weights(*operands[3:])
            arguments = w, graph.encode(), plan.encode()
            results.append(
                [
                    _product(*operands[1:], *arguments),
                    *_gradient(operands, *arguments, [True] * 4),
                    *_tangents(operands, directions, *arguments),
                ]
            )
    finally:
        torch.set_num_threads(n_threads)
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(("way", "least", "most"), [("mixed", 1, 3), ("shared", 4, 8)])
def test_of_what_is_as_large_as_the_weights_little_is_in_memory(way, least, most):
    """In units of the weights of all edges, of which two have the same."""
    measured = json.loads(finish(["-m", "kernels.equivariant.product_memory", way]))
    if measured is None:
        pytest.skip("the system does not tell")
    assert least < measured < most


@pytest.mark.slow
@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize("channels", [5, 16])
def test_operators_keep_the_rules_of_torch(channels):
    graph, plan = draw_graph(5, 8), PLANS["next layer"]
    operands, directions = draw(plan, graph, channels)
    edges, code, nothing = graph.encode(), plan.encode(), torch.empty(0, dtype=torch.float64)
    opcheck(_tangents, (operands, directions, nothing, edges, code))
    operands = [t.requires_grad_() for t in operands]
    opcheck(_product, (*operands[1:], nothing, edges, code))
    opcheck(_gradient, (operands, nothing, edges, code, [True, True, True, False]))
    x, A = (t.detach() for t in operands[3:])
    opcheck(_mix, (x, A))


def test_compiles_without_a_graph_break():
    graph, plan = draw_graph(5, 8), PLANS["next layer"]
    (_, *operands), _ = draw(plan, graph, 5)
    operands = [t.requires_grad_() for t in operands]

    def calculate(*operands):
        return mixed_product(*operands, graph, plan)

    ours = torch.compile(calculate, fullgraph=True, backend="aot_eager")(*operands)
    eager = calculate(*operands)
    assert torch.equal(ours, eager)
    assert_close(
        torch.autograd.grad(ours.sum(), operands), torch.autograd.grad(eager.sum(), operands)
    )


def test_what_does_not_fit_is_named():
    graph, plan = draw_graph(5, 8), PLANS["next layer"]
    (_, h, Y, x, A), _ = draw(plan, graph, 3)
    with pytest.raises(ValueError, match=r"x: expected \(10, 5\) for the plan, got \(9, 5\)"):
        mixed_product(h, Y, x[1:], A, graph, plan)
    with pytest.raises(ValueError, match=r"A: expected \(5, 30\) for the plan, got \(5, 29\)"):
        mixed_product(h, Y, x, A[:, 1:], graph, plan)
    with pytest.raises(ValueError, match=r"Y: expected one dtype .* got torch.float32 on cpu"):
        mixed_product(h, Y.float(), x, A, graph, plan)
    few = Segments.of(torch.tensor([0]), 1)
    with pytest.raises(ValueError, match="expected as many edges of each, got 18, 18 and 1"):
        Graph.of(graph.senders, graph.receivers, few)
    with pytest.raises(ValueError, match="expected as many edges of each, got 18, 1 and 18"):
        Graph.unshared(graph.senders, few)
    kept = mix_weights(x[1:], A)
    with pytest.raises(ValueError, match=r"weights: expected \(10, 30\), .* got \(9, 30\)"):
        mixed_product(h, Y, x, A, graph, plan, kept)
