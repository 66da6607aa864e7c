"""Counts of a partition. Oracles: Python sets; figures that are plain to see on a lattice."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.partition.measuring import measure_partition
from pipeline_kernels.partition import Rows


@st.composite
def partitions(draw):
    """Labels and edges, with repetitions, self edges, empty parts and more than 64 parts."""
    n_nodes, n_parts = draw(st.integers(1, 30)), draw(st.sampled_from([1, 2, 5, 64, 65, 130]))
    nodes = st.integers(0, n_nodes - 1)
    edges = draw(st.lists(st.tuples(nodes, nodes), max_size=120))
    labels = draw(st.lists(st.integers(0, n_parts - 1), min_size=n_nodes, max_size=n_nodes))
    return np.array(labels), np.array(edges, np.int64).reshape(-1, 2), n_parts


@settings(max_examples=37)
@given(partitions())
def test_counts_equal_those_of_sets(case):
    labels, edges, n_parts = case
    halos = [
        {int(j) for i, j in edges if labels[i] == part and labels[j] != part}
        for part in range(n_parts)
    ]
    measured = measure_partition(labels, edges, n_parts)
    assert measured.received.tolist() == [len(halo) for halo in halos]
    assert measured.neighbours.tolist() == [len({labels[j] for j in halo}) for halo in halos]
    assert measured.total_sent == sum(len(halo) for halo in halos)
    assert measured.nodes.tolist() == [int((labels == part).sum()) for part in range(n_parts)]
    owned = [int((labels[edges[:, 0]] == part).sum()) for part in range(n_parts)]
    assert measured.edges.tolist() == owned
    assert measured.cut_edges == sum(labels[i] != labels[j] for i, j in edges)
    if len(edges):
        assert measured.edge_imbalance == pytest.approx(max(owned) * n_parts / len(edges))
    for part, halo in enumerate(halos):
        sources = np.bincount([labels[j] for j in halo], minlength=n_parts)
        assert measured.traffic[part].tolist() == sources.tolist()


@settings(max_examples=15)
@given(partitions(), st.randoms())
def test_the_order_of_the_edges_does_not_matter(case, random):
    labels, edges, n_parts = case
    order = list(range(len(edges)))
    random.shuffle(order)
    expected = measure_partition(labels, edges, n_parts)
    measured = measure_partition(labels, edges[order], n_parts)
    assert np.array_equal(measured.traffic, expected.traffic)
    assert measured.summarize() == expected.summarize()


def test_slabs_of_a_lattice(lattice):
    positions, _, edges = lattice(8, 4, 4)
    measured = measure_partition(positions[:, 0] // 2, edges, 4)
    assert measured.summarize() == {
        "neighbours_mean": 2.0,
        "neighbours_max": 2,
        "received_mean": 32.0,
        "received_max": 32,
        "total_sent": 128,
        "edge_imbalance": 1.0,
        "node_imbalance": 1.0,
        "cut_edges": 128,
    }


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ([[0, 2]], "nodes from 0 to 1, got 0 to 2"),
        ([0, 1], "shape"),
        ([[0.0, 1.0]], "float64"),
    ],
)
def test_wrong_edges_are_refused(edges, message):
    with pytest.raises(ValueError, match=message):
        Rows.of(edges, 2)
