"""Tensor products whose weights are made again where they are needed, and the kernel behind.

Oracle: autograd of the formula in plain PyTorch and float64; the operator with all weights, which
equals e3nn's.
"""

import pytest
import torch
from torch.library import opcheck
from torch.testing import assert_close

from kernels.equivariant.test_product_in_parts import draw
from kernels.equivariant.test_tensor_product import PLANS, Case
from pipeline_kernels.equivariant.tensor_product import (
    ProductPlan,
    cpu,
    multiply_mixed,
    parts,
    tensor_product,
)
from pipeline_kernels.equivariant.tensor_product.op import _tangents

PLAN = ProductPlan.of("0e + 1o", 3, "0e + 1o + 2e + 3o")


@pytest.fixture(params=["C", "reference"])
def implementation(request, use_implementation):
    """Everything in the test is calculated by C, then as without a compiler."""
    with use_implementation(request.param):
        cpu._load.cache_clear()
        yield
    cpu._load.cache_clear()


def draw_tangents(plan, channels, dtype):
    """Return a case and directions of h, Y and w."""
    case = Case.of(plan, n_nodes=5, n_edges=20, channels=channels, dtype=dtype)
    generator = torch.Generator().manual_seed(1)
    like = case.operands[1:]
    return case, [torch.randn(x.shape, generator=generator, dtype=dtype) for x in like]


@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("channels", [1, 32, 35])
@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_all_directions_at_once(plan, channels, dtype):
    case, directions = draw_tangents(plan, channels, dtype)
    arguments = case.operands, directions, case.edges, plan.encode(), True
    ours = _tangents(*arguments)
    g, *inputs = (x.double().requires_grad_() for x in case.operands)
    first = torch.autograd.grad(case.reference(*inputs), inputs, g, create_graph=True)
    moves = [x.double() for x in directions]
    by_g, by_h, by_w = torch.autograd.grad(first, [g, inputs[0], inputs[2]], moves)
    for actual, expected in zip(ours, (by_g, by_h, by_w, first[2]), strict=True):
        assert actual.dtype == dtype
        assert_close(
            actual.double(),
            expected.detach(),
            rtol=1e-9,
            atol=5e-5 if dtype == torch.float32 else 1e-11,
        )
    *same, nothing = _tangents(*arguments[:4], False)
    assert nothing.numel() == 0
    for one, other in zip(same, ours, strict=False):
        assert_close(one, other, rtol=0, atol=0)


def test_it_is_an_operator_of_torch():
    case, directions = draw_tangents(PLAN, 3, torch.float64)
    opcheck(_tangents, (case.operands, directions, case.edges, PLAN.encode(), True))


def test_sums_do_not_depend_on_threads():
    case, directions = draw_tangents(PLAN, 32, torch.float32)
    results, n_threads = [], torch.get_num_threads()
    try:
        for number in (1, 3):
            torch.set_num_threads(number)
            results.append(_tangents(case.operands, directions, case.edges, PLAN.encode(), True))
    finally:
        torch.set_num_threads(n_threads)
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)


def multiply_all(h, Y, x, A, senders, receivers, plan):
    w = (x @ A).unflatten(1, (plan.n_paths, h.shape[2]))
    return tensor_product(h, Y, w, senders, receivers, plan)


def learn(function, operands, graph, moving, learned):
    """Return sums, their derivatives by what moves, and of these by what is learned."""
    inputs = [t.clone().requires_grad_() for t in operands]
    out = function(*inputs, *graph, PLAN)
    first = torch.autograd.grad(out.sin().sum(), [inputs[i] for i in moving], create_graph=True)
    loss = out.square().sum() + sum(part.square().sum() for part in first)
    return [out, *first, *torch.autograd.grad(loss, [inputs[i] for i in learned])]


@pytest.mark.parametrize(
    ("moving", "learned"),
    [((1, 2), (0, 3)), ((0, 1, 2), (0, 2, 3)), ((0, 3), (1, 2, 3)), ((0, 1, 2, 3), (0, 1, 2, 3))],
    ids=["first layer", "next layer", "harmonics too", "all"],
)
@pytest.mark.parametrize("edges_of_a_part", [1, 7, 1000])
def test_parts_make_up_the_whole(monkeypatch, edges_of_a_part, moving, learned):
    operands, A, graph = draw(5, 40, 3)
    monkeypatch.setattr(parts, "PART_BYTES", edges_of_a_part * A.shape[1] * 8)
    ours, theirs = (
        learn(function, (*operands, A), graph, moving, learned)
        for function in (multiply_mixed, multiply_all)
    )
    for one, other in zip(ours, theirs, strict=True):
        assert_close(one, other, rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize("n_edges", [0, 1])
def test_few_edges(n_edges):
    operands, A, graph = draw(5, n_edges, 3)
    case = ((*operands, A), graph, (1, 2), (0, 3))
    for one, other in zip(learn(multiply_mixed, *case), learn(multiply_all, *case), strict=True):
        assert_close(one, other)


def test_third_derivatives(monkeypatch):
    """By finite differences of the second, which the other tests hold."""
    monkeypatch.setattr(parts, "PART_BYTES", 500)
    operands, A, graph = draw(3, 4, 1)
    inputs = [t.requires_grad_() for t in (*operands, A)]

    def differentiate(*inputs):
        out = multiply_mixed(*inputs, *graph, PLAN)
        return torch.autograd.grad(out.sin().sum(), inputs, create_graph=True)

    assert torch.autograd.gradgradcheck(differentiate, inputs, check_undefined_grad=False)
