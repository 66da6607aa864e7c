"""The plan of a halo exchange; oracle: its definition, written with Python's sets."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_kernels.halo import HaloPlan


@st.composite
def split_graphs(draw):
    n_nodes, n_parts = draw(st.integers(0, 12)), draw(st.integers(1, 5))
    node = st.integers(0, max(n_nodes - 1, 0))
    owners = draw(st.lists(st.integers(0, n_parts - 1), min_size=n_nodes, max_size=n_nodes))
    edges = draw(st.lists(st.tuples(node, node), max_size=40 if n_nodes else 0))
    return owners, edges, n_parts


def make_plans(owners, edges, n_parts):
    owners = torch.tensor(owners, dtype=torch.int64)
    edges = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2)
    return [HaloPlan.of(owners, edges, rank, n_parts) for rank in range(n_parts)]


@settings(max_examples=50)
@given(split_graphs())
def test_each_rank_has_what_its_edges_need(case):
    owners, edges, _ = case
    for rank, plan in enumerate(make_plans(*case)):
        own = [node for node, label in enumerate(owners) if label == rank]
        needed = {j for i, j in edges if owners[i] == rank and owners[j] != rank}
        assert plan.own.tolist() == own
        assert plan.halo.tolist() == sorted(needed, key=lambda node: (owners[node], node))


@settings(max_examples=50)
@given(split_graphs())
def test_what_one_sends_is_what_the_other_expects(case):
    plans = make_plans(*case)
    sent, expected = {}, {}
    for rank, plan in enumerate(plans):
        assert list(plan.sends) == sorted(plan.sends)
        nodes = plan.own[plan.send.index].split(list(plan.sends.values())) if plan.sends else ()
        sent |= {(rank, to): n.tolist() for to, n in zip(plan.sends, nodes, strict=True)}
        nodes = plan.halo.split(list(plan.receives.values())) if plan.receives else ()
        expected |= {(of, rank): n.tolist() for of, n in zip(plan.receives, nodes, strict=True)}
    assert sent == expected
    assert all(sent.values())
    assert sum(p.n_sent for p in plans) == sum(p.n_halo for p in plans)
    assert all(p.n_sent == sum(p.sends.values()) for p in plans)


def test_images_of_a_sender_are_received_once():
    plan = make_plans([0, 1, 1], [(0, 2), (0, 2), (0, 1), (2, 2)], 2)[0]
    assert plan.halo.tolist() == [1, 2]
    assert plan.receives == {1: 2}
    assert plan.sends == {}


def test_numbers_of_any_integer_dtype_and_any_strides():
    owners = torch.tensor([0, 1, 1], dtype=torch.uint8)
    edges = torch.tensor([[0, 2, 1], [2, 0, 0]], dtype=torch.int32).T
    plan = HaloPlan.of(owners, edges, 1, 2)
    assert plan.halo.tolist() == [0]
    assert plan.sends == {0: 1}
    assert plan.halo.dtype == plan.own.dtype == torch.int64


def test_to_moves_every_tensor():
    plan = make_plans([0, 1], [(0, 1), (1, 0)], 2)[0].to("meta")
    tensors = (plan.own, plan.halo, plan.send.index)
    assert {tensor.device.type for tensor in tensors} == {"meta"}


LABELS, EDGES = torch.tensor([0, 1, 1]), torch.tensor([[0, 1], [2, 0]])


@pytest.mark.parametrize(
    ("owners", "edges", "rank", "n_parts", "message"),
    [
        (LABELS, EDGES, 2, 2, "rank 2 of 2; take both from the transport"),
        (LABELS, EDGES, 0, 0, "rank 0 of 0"),
        (LABELS.double(), EDGES, 0, 2, "owners: expected integers of shape .n_nodes."),
        (LABELS[None], EDGES, 0, 2, r"owners: .*got torch.int64 of shape \(1, 3\)"),
        (LABELS, EDGES[0], 0, 2, r"edges: expected integers of shape \(n_edges, 2\)"),
        (LABELS, torch.zeros(2, 3).long(), 0, 2, r"a row \(receiver, sender\)"),
        (LABELS, EDGES.to("meta"), 0, 2, r"edges: expected device cpu .* move it with .to\(\)"),
        (LABELS + 1, EDGES, 0, 2, "owners: expected numbers from 0 to 1, got 1 to 2; n_parts"),
        (LABELS, EDGES + 1, 0, 2, "edges: expected numbers from 0 to 2, got 1 to 3; owners"),
        (LABELS, EDGES - 1, 0, 2, "edges: .* got -1 to 1"),
    ],
)
def test_bad_arguments_are_named(owners, edges, rank, n_parts, message):
    with pytest.raises(ValueError, match=message):
        HaloPlan.of(owners, edges, rank, n_parts)
