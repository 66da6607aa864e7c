"""Tensor products whose weights are mapped part by part. Oracle: the operator with all weights,
which equals e3nn's."""

import json

import pytest
import torch
from torch.testing import assert_close

from pipeline_kernels.equivariant.tensor_product import (
    ProductPlan,
    multiply_in_parts,
    parts,
    tensor_product,
)
from pipeline_kernels.message import Segments
from processes import finish

PLAN = ProductPlan.of("0e + 1o", 3, "0e + 1o + 2e + 3o")
K = 4


def draw(n_nodes, n_edges, channels, dtype=torch.float64):
    """Return h, Y, x, the projection, and the graph."""
    generator = torch.Generator().manual_seed(0)
    ends = torch.randint(n_nodes, (2, n_edges), generator=generator)

    def normal(*shape):
        return torch.randn(shape, generator=generator, dtype=dtype)

    operands = normal(n_nodes, PLAN.dim_in, channels), normal(n_edges, PLAN.dim_sh)
    features, projection = normal(n_edges, K), normal(K, PLAN.n_paths * channels)
    receivers = Segments.of(ends[1].sort().values, n_nodes + 2)  # two receive nothing
    return (*operands, features), projection, (Segments.of(ends[0], n_nodes), receivers)


def multiply_all(h, Y, x, weigh, senders, receivers, plan):
    w = weigh(x).unflatten(1, (plan.n_paths, h.shape[2]))
    return tensor_product(h, Y, w, senders, receivers, plan)


def calculate(function, operands, projection, graph, wanted=(True, True, True)):
    """Return the sums, their gradients, and gradients of these."""
    inputs = [t.clone().requires_grad_(want) for t, want in zip(operands, wanted, strict=True)]
    moving = [t for t in inputs if t.requires_grad]

    def sum_up():
        return function(*inputs, lambda x: (x @ projection).tanh(), *graph, PLAN)

    out = sum_up()
    first = torch.autograd.grad(out.sin().sum(), moving)
    again = torch.autograd.grad(sum_up().sin().sum(), moving, create_graph=True)
    second = torch.autograd.grad(sum(part.square().sum() for part in again), moving)
    return [out, *first, *again, *second]


@pytest.mark.parametrize("n_edges", [0, 1, 40])
@pytest.mark.parametrize("edges_of_a_part", [1, 7, 1000])
def test_parts_make_up_the_whole(monkeypatch, n_edges, edges_of_a_part):
    operands, projection, graph = draw(5, n_edges, 3)
    monkeypatch.setattr(parts, "PART_BYTES", edges_of_a_part * projection.shape[1] * 8)
    ours = calculate(multiply_in_parts, operands, projection, graph)
    for one, other in zip(ours, calculate(multiply_all, operands, projection, graph), strict=True):
        assert_close(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("wanted", [(False, True, True), (True, False, False)])
def test_only_what_is_needed_gets_a_gradient(monkeypatch, wanted):
    monkeypatch.setattr(parts, "PART_BYTES", 1000)
    case = draw(5, 40, 3)
    ours, theirs = (calculate(f, *case, wanted) for f in (multiply_in_parts, multiply_all))
    for one, other in zip(ours, theirs, strict=True):
        assert_close(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("create_graph", [False, True])
def test_products_that_follow_each_other_have_the_gradient_of_both(monkeypatch, create_graph):
    """Features of the second product depend on the edges of the first, as in a network."""
    monkeypatch.setattr(parts, "PART_BYTES", 1000)
    plan = ProductPlan.of("0e + 1o", 3, "0e + 1o")
    (h, Y, _), _, (senders, receivers) = draw(5, 40, 3)
    receivers = Segments.of(receivers.index, 5)
    generator = torch.Generator().manual_seed(1)
    projection = torch.randn(K, plan.n_paths * 3, generator=generator, dtype=torch.float64)

    def weigh(x):
        return x @ projection

    gradients = []
    for function in (multiply_in_parts, multiply_all):
        harmonics = Y.clone().requires_grad_()
        x = harmonics[:, :K].tanh()
        inner = function(h, harmonics, x, weigh, senders, receivers, plan)
        features = inner.sum(1, keepdim=True).expand(-1, plan.dim_in, -1)
        out = function(features, harmonics, x, weigh, senders, receivers, plan)
        gradients += torch.autograd.grad(out.sin().sum(), harmonics, create_graph=create_graph)
    assert_close(*gradients, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("function", "least", "most"), [("parts", 0, 0.9), ("all", 1.8, 3)])
def test_weights_of_all_edges_are_never_in_memory(function, least, most):
    """Of one set of weights of all edges; the whole needs theirs and their gradient."""
    measured = json.loads(finish(["-m", "kernels.equivariant.product_memory", function]))
    if measured is None:
        pytest.skip("the system does not tell")
    assert least < measured < most
