"""The tensor product whose weights are mapped from features that edges share.

Oracle: autograd of the formula in plain PyTorch and float64; `tensor_product`, which equals e3nn's.
"""

import pytest
import torch
from hypothesis import strategies as st
from torch.library import opcheck
from torch.testing import assert_close

from kernels.contract import Call, KernelContract
from kernels.equivariant.product_case import (
    PLANS,
    SECOND,
    draw_graph,
    draw_mixed,
    multiply_all,
)
from pipeline_kernels.equivariant.mixed_product import (
    Graph,
    cpu,
    mix_weights,
    mixed_product,
    reference,
)
from pipeline_kernels.equivariant.mixed_product.op import _tangents
from pipeline_kernels.message import Segments
from tiers import cover_pairs

NAMES = ["second layer", "first layer", "pseudovectors"]
DTYPES = [torch.float32, torch.float64]


class TestMixedProduct(KernelContract):
    folder = "equivariant/mixed_product"
    tolerances = {torch.float32: 1e-5, torch.float64: 1e-12}
    options = {"plan": NAMES, "channels": [21, 1, 32]}
    few = {"plan": "twice the same", "n_nodes": 2, "n_pairs": 1, "n_alone": 1, "channels": 1}
    many = {"n_nodes": 40, "n_pairs": 900}
    empty = {"n_nodes": 0, "n_pairs": 0, "n_alone": 0}
    random = {"n_nodes": st.integers(1, 9), "n_pairs": st.integers(0, 30)}
    third, mixed = True, 0.02
    refused = [
        (2, lambda x: x[1:], r"x: expected \(62, K\) of .*, got \(61, 5\)"),
        (3, lambda A: A[:, 1:], r"A: expected \(5, 210\) of .*, got \(5, 209\)"),
        (1, torch.Tensor.float, r"Y: expected .* of torch.float64 .* got .*torch.float32 on cpu"),
    ]
    without = {
        "test_gpu_equals_the_reference": "there the tensor product calculates",
        "test_gpu_shares_many": "there the tensor product calculates",
    }

    def draw(self, generator, plan, channels, n_nodes=7, n_pairs=60, n_alone=2):
        plan = PLANS[plan]
        graph = draw_graph(n_nodes, n_pairs, n_alone, generator=generator)
        operands = draw_mixed(plan, graph, channels, generator=generator)
        return Call(mixed_product, reference.product, operands, [graph, plan])


def learn(function, operands, graph, moving, learned, plan=SECOND):
    """Return sums, their derivatives by what moves, and of these by what is learned."""
    inputs = [t.clone().requires_grad_() for t in operands]
    out = function(*inputs, graph, plan)
    first = torch.autograd.grad(out.sin().sum(), [inputs[i] for i in moving], create_graph=True)
    loss = out.square().sum() + sum(part.square().sum() for part in first)
    return [out, *first, *torch.autograd.grad(loss, [inputs[i] for i in learned])]


LEARNED = {
    "first layer": ((1, 2), (0, 3)),
    "next layer": ((0, 1, 2), (0, 2, 3)),
    "features and map": ((0, 3), (1, 2, 3)),
    "all": ((0, 1, 2, 3), (0, 1, 2, 3)),
}


@pytest.mark.parametrize(
    ("implementation", "function", "plan", "channels", "what", "edges_of_a_part", "dtype"),
    cover_pairs(
        *(["C", "reference"], [mixed_product, multiply_all], NAMES, [1, 32, 35], LEARNED),
        *([1, 7, 1000], DTYPES),
    ),
    indirect=["implementation"],
    scope="module",
)
def test_forces_are_learned_as_by_the_formula(
    monkeypatch, implementation, function, plan, channels, what, edges_of_a_part, dtype
):
    """Of mixed products, and of those with weights of each edge: one pass does most of it."""
    graph, plan = draw_graph(5, 40), PLANS[plan]
    operands = [t.to(dtype) for t in draw_mixed(plan, graph, channels)]
    monkeypatch.setattr(cpu, "PART_BYTES", edges_of_a_part * operands[0][0].numel() * 8)
    wide = [t.double() for t in operands]
    exact = learn(reference.product, wide, graph, *LEARNED[what], plan)
    ours = learn(function, operands, graph, *LEARNED[what], plan)
    for one, other in zip(ours, exact, strict=True):
        atol = (2e-5 if dtype == torch.float32 else 1e-12) * float(other.detach().abs().max())
        assert_close(one.double(), other.detach(), rtol=0, atol=atol)


def share(n_sharing):
    """Return edges of which so many have the same weights."""
    generator = torch.Generator().manual_seed(0)
    senders, receivers = torch.randint(4, (2, 3 * n_sharing), generator=generator)
    rows = Segments.of(torch.arange(3).repeat(n_sharing), 3)
    return Graph.of(Segments.of(senders, 4), Segments.of(receivers, 4), rows)


def leave_rows_out():
    """Return edges, and weights that none of them has."""
    full = draw_graph(5, 40)
    rows = Segments.of(3 * full.rows.index + 1, 3 * full.rows.n_segments)
    return Graph.of(full.senders, full.receivers, rows)


GRAPHS = {
    "no edges": draw_graph(5, 0, 0),
    "one edge": draw_graph(5, 0, 1),
    "one pair": draw_graph(5, 1, 0),
    **{f"{n} share weights": share(n) for n in (1, 2, 100)},
    "weights of no edge": leave_rows_out(),
    "weights of their own": Graph.unshared(draw_graph(5, 40).senders, draw_graph(5, 40).receivers),
}


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_any_edges_may_share_weights(graph):
    case = draw_mixed(SECOND, graph, 16), graph, (0, 1, 2), (0, 2, 3)
    ours, theirs = learn(mixed_product, *case), learn(multiply_all, *case)
    assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_the_pass_of_a_training_keeps_the_rules_of_torch(implementation):
    graph = draw_graph(5, 8)
    h, Y, x, A = draw_mixed(SECOND, graph, 5)
    g = torch.randn(graph.receivers.n_segments, SECOND.dim_out, 5, dtype=torch.float64)
    tail = torch.empty(0, dtype=torch.float64), graph.encode(), SECOND.encode()
    opcheck(_tangents, ([g, h, Y, x, A], [h.sin(), Y.sin(), x.sin()], *tail))


def test_what_does_not_fit_is_named():
    graph = draw_graph(5, 8)
    few = Segments.of(torch.tensor([0]), 1)
    with pytest.raises(ValueError, match=r"rows: expected 18 elements .* got 1"):
        Graph.of(graph.senders, graph.receivers, few)
    with pytest.raises(ValueError, match=r"receivers: expected 18 elements .* got 1"):
        Graph.unshared(graph.senders, few)
    h, Y, x, A = draw_mixed(SECOND, graph, 3)
    kept = mix_weights(x[1:], A)
    with pytest.raises(ValueError, match=r"weights: expected \(10, 30\), .* got \(9, 30\)"):
        mixed_product(h, Y, x, A, graph, SECOND, kept)
