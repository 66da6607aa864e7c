"""Slices and virtual nodes. Oracles: slices of lattices, searches through the graph by hand.

That a network of one layer is exact on own atoms of a slice: `tests/plugins/egnn_esp/test_slices`.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_kernels.partition import (
    PlaneCoordinates,
    Rows,
    count_virtual,
    cut_by_slices,
    measure_partition,
)

PERIODIC = (True, True, True)
seeds = st.integers(0, 2**32 - 1)


def test_slices_are_equally_wide(lattice):
    positions, cell, edges = lattice(12, 4, 4)
    labels = cut_by_slices(PlaneCoordinates.of(positions, cell, PERIODIC, 1.1), 4)
    assert labels.tolist() == (positions[:, 0] // 3).astype(int).tolist()
    result = measure_partition(labels, edges, 4)
    assert result.neighbours.tolist() == [2] * 4
    assert result.received.tolist() == [32] * 4  # two faces of 4 x 4 atoms
    assert result.cut_edges == 4 * 32


def test_dense_slices_have_more_atoms():
    positions = np.array([[x, 0.0, 0.0] for x in (0, 0.1, 0.2, 0.3, 5, 9.9)])
    atoms = PlaneCoordinates.of(positions, 10 * np.eye(3), (True, False, False), 6.0)
    assert cut_by_slices(atoms, 2).tolist() == [0, 0, 0, 0, 1, 1]


def test_no_slice_is_empty():
    positions = np.array([[x, 0.0, 0.0] for x in (0, 0.1, 0.2, 9.9)])
    atoms = PlaneCoordinates.of(positions, np.zeros((3, 3)), (False,) * 3, 3.0)
    assert cut_by_slices(atoms, 3).tolist() == [0, 0, 1, 2]
    assert cut_by_slices(atoms, 4).tolist() == [0, 1, 2, 3]


@settings(max_examples=15)
@given(seeds, st.integers(1, 70), st.integers(1, 4))
def test_virtual_nodes_are_those_that_layers_read(seed, n_parts, depth):
    """Counted by walking the graph against its edges, part by part."""
    rng = np.random.default_rng(seed)
    n_nodes = 70 + int(rng.integers(20))
    labels = rng.integers(n_parts, size=n_nodes)
    edges = rng.integers(n_nodes, size=(int(rng.integers(200)), 2))
    result = count_virtual(labels, Rows.of(edges, n_nodes), n_parts, depth)
    for part in range(n_parts):
        read = set(np.flatnonzero(labels == part).tolist())
        for _ in range(depth):
            inner = read
            read = inner | {int(sender) for receiver, sender in edges if receiver in inner}
        assert result.nodes[part] == len(read)
        assert result.virtual[part] == len(read) - int((labels == part).sum())
        assert result.edges[part] == sum(int(receiver) in inner for receiver, _ in edges)


def test_the_virtual_nodes_of_one_layer_are_those_received_in_an_exchange(lattice):
    positions, cell, edges = lattice(12, 4, 4)
    rows = Rows.of(edges, len(positions))
    labels = cut_by_slices(PlaneCoordinates.of(positions, cell, PERIODIC, 1.1), 3)
    one, two, many = (count_virtual(labels, rows, 3, depth) for depth in (1, 2, 9))
    assert one.virtual.tolist() == rows.measure(labels, 3).received.tolist() == [32] * 3
    assert one.summarize()["times_edges"] == 1
    assert two.virtual.tolist() == [64] * 3
    assert two.summarize()["times_edges"] == (64 + 32) / 64
    assert many.nodes.tolist() == [len(positions)] * 3
    assert many.summarize()["times_nodes"] == many.summarize()["times_edges"] == 3
    with pytest.raises(ValueError, match="at least 1"):
        count_virtual(labels, rows, 3, 0)


def test_without_edges_there_are_no_virtual_nodes():
    result = count_virtual(np.array([0, 1]), Rows.of([], 2), 2, 3).summarize()
    assert result["virtual_max"] == 0
    assert result["times_nodes"] == result["times_edges"] == result["edge_imbalance"] == 1
