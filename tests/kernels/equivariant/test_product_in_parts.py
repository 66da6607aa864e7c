"""Tensor products whose weights are mapped part by part.

Oracle: the operator with all weights, which equals e3nn's.
"""

import pytest
import torch
from torch.testing import assert_close

from kernels.equivariant.product_case import SECOND, draw_graph, draw_mixed, weigh_all
from pipeline_kernels.equivariant.tensor_product import ProductPlan, multiply_in_parts, parts

ALL, NO_FEATURES, FEATURES = (True, True, True), (False, True, True), (True, False, False)


def differentiate(function, n_edges, wanted):
    """Return the sums, their gradients, and gradients of these."""
    graph = draw_graph(5, 0, n_edges, ordered=True)
    *inputs, A = draw_mixed(SECOND, graph, 3)
    moving = [t.requires_grad_() for t, want in zip(inputs, wanted, strict=True) if want]

    def sum_up():
        return function(*inputs, lambda x: (x @ A).tanh(), graph.senders, graph.receivers, SECOND)

    out = sum_up()
    first = torch.autograd.grad(out.sin().sum(), moving)
    again = torch.autograd.grad(sum_up().sin().sum(), moving, create_graph=True)
    second = torch.autograd.grad(sum(part.square().sum() for part in again), moving)
    return [out, *first, *again, *second]


@pytest.mark.parametrize(
    ("n_edges", "wanted"), [(0, ALL), (1, ALL), (40, ALL), (40, NO_FEATURES), (40, FEATURES)]
)
@pytest.mark.parametrize("edges_of_a_part", [1, 7, 1000])
def test_parts_make_up_the_whole(monkeypatch, n_edges, wanted, edges_of_a_part):
    monkeypatch.setattr(parts, "PART_BYTES", edges_of_a_part * SECOND.n_paths * 3 * 8)
    ours, theirs = (differentiate(f, n_edges, wanted) for f in (multiply_in_parts, weigh_all))
    assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("create_graph", [False, True])
def test_products_that_follow_each_other_have_the_gradient_of_both(monkeypatch, create_graph):
    """Features of the second product depend on the edges of the first, as in a network."""
    monkeypatch.setattr(parts, "PART_BYTES", 1000)
    plan, graph = ProductPlan.of("0e + 1o", 3, "0e + 1o"), draw_graph(5, 0, 40, ordered=True)
    h, Y, _, A = draw_mixed(plan, graph, 3)
    ends = lambda x: x @ A, graph.senders, graph.receivers, plan
    gradients = []
    for function in (multiply_in_parts, weigh_all):
        harmonics = Y.clone().requires_grad_()
        inner = function(h, harmonics, harmonics[:, :5].tanh(), *ends)
        features = inner[: len(h)].sum(1, keepdim=True).expand(-1, plan.dim_in, -1)
        out = function(features, harmonics, harmonics[:, :5].tanh(), *ends)
        gradients += torch.autograd.grad(out.sin().sum(), harmonics, create_graph=create_graph)
    assert_close(*gradients, rtol=1e-9, atol=1e-9)
