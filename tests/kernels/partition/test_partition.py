"""Partitions. Oracles: optimal partitions of lattices, METIS called directly, symmetry, the paper.

The paper: section 4.4 and figure 5, 14.5 million edges of 24,000 atoms within 12 Å.
"""

from typing import get_args

import numpy as np
import pymetis
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.partition.measuring import measure_partition
from pipeline_kernels.partition import (
    MESSAGE,
    Method,
    PlaneCoordinates,
    Rows,
    count_exchange,
    cut_by_grid,
    cut_by_low_nn,
    cut_by_metis,
    cut_by_metis_volume,
    find_candidates,
    partition,
    refine,
)
from pipeline_kernels.partition.graph_cut import make_adjacency
from pipeline_kernels.partition.search import estimate, find_pareto_set, list_shapes
from pipeline_kernels.partition.synthetic import draw_packing, find_edges
from tiers import exhaustive

METHODS = get_args(Method)
BALANCED = ("auto", "low_nn", "grid")
BY_PLANES = (*BALANCED, "slices")
PERIODIC = (True, True, True)
seeds = st.integers(0, 2**32 - 1)


@pytest.fixture(scope="module")
def packing():
    positions, cell = draw_packing(300, (26.0, 13.0, 13.0), (1, 1, 1))
    return positions, cell, find_edges(positions, cell, 4.0)


@settings(max_examples=15)
@given(seeds, st.integers(1, 40), st.sampled_from(METHODS))
def test_every_atom_has_a_part_in_any_cell(edges_of, seed, n_parts, method):
    rng = np.random.default_rng(seed)
    cell, pbc = 5 * (np.eye(3) + rng.uniform(-0.4, 0.4, (3, 3))), rng.integers(2, size=3) > 0
    positions = rng.uniform(-8, 8, (40, 3))
    cutoff = rng.uniform(0.5, 6.0)
    edges, _ = edges_of(positions, cell, pbc, cutoff)
    labels = partition(positions, cell, pbc, edges, n_parts, cutoff, method)
    assert labels.shape == (40,)
    assert labels.dtype == np.int64
    assert labels.min() >= 0
    assert labels.max() < n_parts
    if method in BY_PLANES:
        assert len(np.unique(labels)) == n_parts


@pytest.mark.parametrize("method", [*BALANCED, "metis", "metis_volume"])
def test_without_edges_atoms_are_shared_evenly(method):
    positions = np.random.default_rng(0).uniform(0, 9, (24, 3))
    labels = partition(positions, np.eye(3) * 9, PERIODIC, [], 6, 1.0, method)
    assert np.bincount(labels).tolist() == [4] * 6


@pytest.mark.parametrize("method", BY_PLANES)
@pytest.mark.parametrize("n_parts", [2, 3, 4, 7, 8])
def test_a_chain_has_two_neighbours(lattice, method, n_parts):
    positions, cell, edges = lattice(56, 2, 2)
    labels = partition(positions, cell, PERIODIC, edges, n_parts, 1.1, method)
    result = measure_partition(labels, edges, n_parts)
    assert result.neighbours.max() == min(2, n_parts - 1)
    assert result.received.tolist() == [8] * n_parts


def test_the_latency_decides_between_slabs_and_cubes(lattice):
    positions, cell, edges = lattice(8, 8, 8)
    few, little = (
        measure_partition(
            partition(positions, cell, PERIODIC, edges, 8, 1.1, "grid", message), edges, 8
        )
        for message in (1e7, 0.0)
    )
    assert few.neighbours.tolist() == [2] * 8  # slabs: no ring of parts has fewer
    assert few.received.tolist() == [128] * 8
    assert little.neighbours.tolist() == [3] * 8  # cubes: 6 faces of 16 atoms, 3 neighbours
    assert little.received.tolist() == [96] * 8


def test_low_nn_bisects_the_axis_that_adds_fewest(lattice):
    positions, cell, edges = lattice(8, 8, 8)
    atoms = PlaneCoordinates.of(positions, cell, PERIODIC, 1.1)
    labels = cut_by_low_nn(atoms, np.ones(512), 8)
    result = measure_partition(labels, edges, 8)
    assert result.neighbours.tolist() == [3] * 8
    assert result.nodes.tolist() == [64] * 8


@pytest.mark.parametrize("n_parts", [3, 5, 6, 12, 96])
def test_low_nn_takes_any_number_of_parts(packing, n_parts):
    positions, cell, _ = packing
    weights = np.ones(300)
    labels = cut_by_low_nn(PlaneCoordinates.of(positions, cell, PERIODIC, 4.0), weights, n_parts)
    counts = np.bincount(labels, minlength=n_parts)
    assert abs(counts - 300 / n_parts).max() < 2


@pytest.mark.parametrize("method", BALANCED)
def test_edges_are_balanced(packing, method):
    positions, cell, edges = packing
    labels = partition(positions, cell, PERIODIC, edges, 4, 4.0, method)
    assert measure_partition(labels, edges, 4).edge_imbalance < 1.02


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("skew", [0.0, 0.37])
def test_lattice_translation_and_rotation_change_nothing(packing, method, skew):
    positions, cell, _ = packing
    rng = np.random.default_rng(3)
    strain = np.eye(3) + skew * np.array([[0, 0.5, 0], [0, 0, 0], [1, 0, 0]])
    positions, cell = positions @ strain, cell @ strain
    edges = np.argwhere(~np.eye(len(positions), dtype=bool) & (rng.random((300, 300)) < 0.02))
    moved = positions + rng.integers(-3, 4, positions.shape) @ cell
    rotation, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    one, other = (
        measure_partition(partition(r, c, PERIODIC, edges, 6, 4.0, method), edges, 6)
        for r, c in ((positions, cell), (moved @ rotation, cell @ rotation))
    )
    assert one.summarize() == other.summarize()


def test_cuts_follow_the_weights():
    positions = np.stack([np.arange(6.0), np.zeros(6), np.zeros(6)], 1)
    atoms = PlaneCoordinates.of(positions, np.zeros((3, 3)), (False,) * 3, 1.0)
    labels = cut_by_grid(atoms, np.array([9.0, 1, 1, 1, 3, 3]), (2, 1, 1))
    assert labels.tolist() == [0, 1, 1, 1, 1, 1]
    assert cut_by_low_nn(atoms, np.array([1.0, 1, 1, 1, 3, 3]), 2).tolist() == [0, 0, 0, 0, 1, 1]
    assert cut_by_low_nn(atoms, np.array([9.0, 0, 0, 0, 0, 0]), 6).tolist() == [0, 1, 2, 3, 4, 5]


def test_all_factorizations_are_tried():
    # ordered triples: the product of (e + 2)(e + 1) / 2 over the exponents of the primes
    for n_parts, expected in ((1, 1), (7, 3), (64, 28), (96, 63), (360, 180)):
        result = list(list_shapes(n_parts))
        assert len(result) == len(set(result)) == expected
        assert all(x * y * z == n_parts for x, y, z in result)


def test_the_estimate_counts_boxes_exactly_on_a_lattice(lattice):
    positions, cell, _ = lattice(12, 4, 4)
    atoms, message = PlaneCoordinates.of(positions, cell, PERIODIC, 1.1), 1e18
    with_corners = Rows.of(_all_within_cube(positions, cell), len(positions))
    for shape in ((6, 1, 1), (3, 2, 1), (6, 2, 2)):
        n_parts = int(np.prod(shape))
        labels = cut_by_grid(atoms, np.ones(len(positions)), shape)
        measured = with_corners.measure(labels, n_parts).neighbours.mean()
        assert round(estimate(atoms, len(positions), shape, message) / message) == measured


def _all_within_cube(positions, cell):
    apart = np.abs(positions[:, None] - positions)
    apart = np.minimum(apart, np.diagonal(cell) - apart)
    return np.argwhere((apart <= 1.1).all(-1))


def test_the_pareto_set_holds_what_none_dominates(packing):
    positions, cell, edges = packing
    atoms, rows = PlaneCoordinates.of(positions, cell, PERIODIC, 4.0), Rows.of(edges, 300)
    result = find_candidates(atoms, rows, 12, MESSAGE)
    for one in result:
        for other in result:
            better = [a < b for a, b in zip(other.objectives, one.objectives, strict=True)]
            worse = [a > b for a, b in zip(other.objectives, one.objectives, strict=True)]
            assert one is other or not any(better) or any(worse)
    costs = [count_exchange(one.metrics, MESSAGE) for one in result]
    assert costs == sorted(costs)
    assert len(find_pareto_set([result[0], result[0]])) == 1


def test_an_exchange_waits_for_the_slowest_part():
    result = measure_partition([0, 0, 1, 2], [[0, 2], [0, 3], [1, 3], [2, 0]], 3)
    assert count_exchange(result, 0.6) == pytest.approx(2 * 0.6 + 2)


@settings(max_examples=15)
@given(seeds, st.integers(2, 7), st.floats(0, 50))
def test_refinement_never_costs_more(seed, n_parts, message):
    rng = np.random.default_rng(seed)
    places = rng.uniform(0, 1, (60, 2))
    near = np.linalg.norm(places[:, None] - places, axis=-1) < rng.uniform(0.1, 0.5)
    edges = np.argwhere(near & (rng.random((60, 60)) < 0.7))  # directed, with self edges
    edges = np.concatenate([edges, edges[::3]])
    start = np.concatenate([np.arange(n_parts), rng.integers(n_parts, size=60 - n_parts)])
    labels = refine(start, Rows.of(edges, 60), n_parts, message)
    before, after = (
        measure_partition(start, edges, n_parts),
        measure_partition(labels, edges, n_parts),
    )
    costs = [m.received + message * m.neighbours for m in (before, after)]
    assert costs[1].sum() <= costs[0].sum() + 1e-6
    assert costs[1].max() <= costs[0].max() + 0.51
    assert after.nodes.min() >= 1
    assert after.edge_imbalance <= max(before.edge_imbalance, 1.01) + 1e-12


def test_refinement_straightens_a_ragged_boundary(lattice):
    positions, _, edges = lattice(40, 10, 10)
    straight = (positions[:, 0] // 10).astype(np.int64)
    rng = np.random.default_rng(0)
    below_the_face = np.flatnonzero(positions[:, 0] % 10 // 1 == 8)
    swapped = rng.choice(below_the_face, 30, replace=False)
    ragged = straight.copy()
    ragged[swapped] = (ragged[swapped] + 1) % 4
    result = measure_partition(refine(ragged, Rows.of(edges, 4000), 4, 250.0, 1.05), edges, 4)
    best, worst = (measure_partition(labels, edges, 4).total_sent for labels in (straight, ragged))
    assert best == 800
    assert worst > 900
    assert result.total_sent - best < 0.2 * (worst - best)


def test_metis_is_metis(packing):
    positions, cell, edges = packing
    lists = [set() for _ in positions]
    for receiver, sender in edges:
        lists[receiver].add(int(sender))
    expected = pymetis.part_graph(8, adjacency=[sorted(row) for row in lists]).vertex_part
    again = np.concatenate([edges, edges[::2], np.arange(300)[:, None].repeat(2, 1)])
    for given_edges in (edges, again, edges[edges[:, 0] < edges[:, 1]]):
        labels = partition(positions, cell, PERIODIC, given_edges, 8, 4.0, "metis")
        assert labels.tolist() == list(expected)


def test_the_volume_objective_sends_less_than_the_default(packing):
    _, _, edges = packing
    rows = Rows.of(edges, 300)
    graph = make_adjacency(rows)
    plain = measure_partition(cut_by_metis(graph, 8), edges, 8)
    volume = measure_partition(cut_by_metis_volume(graph, 8, rows.degrees), edges, 8)
    assert volume.total_sent < plain.total_sent


@pytest.mark.slow
def test_the_packing_keeps_its_distances_and_its_seed(edges_of):
    positions, cell = draw_packing(100, (11.0, 12.0, 13.0), (1, 1, 2), seed=5)
    assert positions.shape == (200, 3)
    assert np.diagonal(cell).tolist() == [11.0, 12.0, 26.0]
    expected, vectors = edges_of(positions, cell, PERIODIC, 5.0)
    assert np.linalg.norm(vectors, axis=1).min() > 1.7
    result = find_edges(positions, cell, 5.0)
    assert sorted(map(tuple, result)) == sorted(map(tuple, expected))
    assert np.array_equal(draw_packing(100, (11.0, 12.0, 13.0), (1, 1, 2), seed=5)[0], positions)
    with pytest.raises(ValueError, match="no room for 999 atoms"):
        draw_packing(999, (5.0, 5.0, 5.0))
    with pytest.raises(ValueError, match="at least 12"):
        find_edges(positions, cell, 6.0)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"n_parts": 4}, "expected 1 to 3, the number of atoms"),
        ({"n_parts": 0}, "expected 1 to 3, the number of atoms"),
        ({"method": "scotch"}, "one of auto, low_nn, metis, metis_volume, grid, slices"),
        ({"cutoff": 0.0}, "positive number"),
        ({"cell": np.zeros((3, 3))}, "span no volume"),
        ({"edges": [[0, 3]]}, "nodes from 0 to 2"),
        ({"positions": np.full((3, 3), np.nan)}, "finite"),
        ({"pbc": True}, "shapes"),
    ],
)
def test_wrong_input_is_refused(changed, message):
    arguments = {
        "positions": np.eye(3),
        "cell": np.eye(3) * 4,
        "pbc": PERIODIC,
        "edges": [[0, 1]],
        "n_parts": 2,
        "cutoff": 2.0,
    }
    with pytest.raises(ValueError, match=message):
        partition(**arguments | changed)


@exhaustive
def test_the_structure_of_the_paper():
    positions, cell = draw_packing()
    edges = find_edges(positions, cell, 12.0)
    assert len(positions) == 24_000
    assert len(edges) == pytest.approx(14.5e6, rel=0.01)
    atoms, rows = PlaneCoordinates.of(positions, cell, PERIODIC, 12.0), Rows.of(edges, 24_000)
    plain = rows.measure(cut_by_metis(make_adjacency(rows), 64), 64)
    few = rows.measure(cut_by_low_nn(atoms, rows.weights, 64), 64)
    assert few.edge_imbalance <= 1.01
    assert few.neighbours.mean() <= 0.7 * plain.neighbours.mean()
    best = find_candidates(atoms, rows, 64, MESSAGE)[0]
    refined = rows.measure(refine(best.labels, rows, 64, MESSAGE), 64)
    assert refined.neighbours.mean() <= 0.55 * plain.neighbours.mean()
    assert refined.total_sent <= plain.total_sent
    assert refined.edge_imbalance <= 1.01
