"""The graph of atoms that move, against one that is built anew from each of their places."""

import ase.build
import numpy as np
import pytest
from ase.geometry import wrap_positions

from pipeline_atoms.calculators import moving_graph
from pipeline_atoms.calculators.moving_graph import MovingGraph
from pipeline_atoms.config.graph import GraphOptions
from pipeline_atoms.graphs import build_graph

OPTIONS = GraphOptions(cutoff=4.2, angle_cutoff=3.0)
SLAB = ase.build.fcc111("Cu", (2, 2, 2), a=3.6, vacuum=6.0)
CRYSTAL = ase.build.bulk("Cu", "fcc", 3.6, cubic=True)


@pytest.fixture
def searches(monkeypatch):
    """How often neighbours have been searched."""
    calls = []

    def search(*arguments):
        calls.append(arguments)
        return original(*arguments)

    original = moving_graph.build_neighbour_graph
    monkeypatch.setattr(moving_graph, "build_neighbour_graph", search)
    return calls


def describe(positions, cell, graph):
    """Return vectors of edges, of bonds and of both arms of angles, in one order."""
    index = graph["edge_index"]
    edges = positions[index[:, 1]] - positions[index[:, 0]] + graph["edge_shift"] @ cell
    bonds = edges[graph["bond_edge"]][graph["edge_bond"]]
    bonds = bonds * np.sign((bonds * edges).sum(1))[:, None]
    columns = [
        np.hstack([index, edges, bonds]),
        np.hstack([index[graph["angle_edges"][:, 0]], *edges[graph["angle_edges"].T]]),
    ]
    return [rows[np.lexsort(rows.round(6).T)] for rows in columns]


def check(moving, atoms):
    """Compare with a graph built from nothing; return the graph."""
    cell = np.array(atoms.cell)
    places, graph = moving.update(atoms.positions, cell, atoms.pbc)
    wrapped = wrap_positions(atoms.positions, atoms.cell, atoms.pbc)
    fresh = build_graph({"positions": wrapped, "cell": cell, "pbc": atoms.pbc}, OPTIONS)
    for one, other in zip(
        describe(places, cell, graph), describe(wrapped, cell, fresh), strict=True
    ):
        assert one.shape == other.shape
        assert np.allclose(one, other, atol=1e-9)
    return graph


@pytest.mark.parametrize("start", [CRYSTAL, SLAB], ids=["crystal", "slab"])
def test_equals_a_new_graph_while_atoms_come_and_go(start, searches):
    rng, atoms, moving = np.random.default_rng(0), start.copy(), MovingGraph(OPTIONS)
    counts = set()
    for _ in range(60):
        atoms.positions += rng.normal([0.02, 0, 0], 0.03, atoms.positions.shape)
        graph = check(moving, atoms)
        counts.add((len(graph["edge_index"]), len(graph["angle_edges"])))
    assert len(counts) > 10
    assert 2 <= len(searches) < 30


def test_searches_when_an_atom_has_crossed_half_of_the_skin(searches):
    atoms, moving = CRYSTAL.copy(), MovingGraph(OPTIONS)
    for way, n_searches in [(0, 1), (0.249, 1), (0.251, 2), (0.49, 2), (0.502, 3)]:
        atoms.positions[2] = CRYSTAL.positions[2] + [0, way, 0]
        check(moving, atoms)
        assert len(searches) == n_searches


def test_another_cell_or_other_atoms_are_searched_anew(searches):
    moving = MovingGraph(OPTIONS)
    stretched, open_ended = CRYSTAL.copy(), CRYSTAL.copy()
    stretched.set_cell(1.001 * np.array(stretched.cell), scale_atoms=True)
    open_ended.pbc = [True, True, False]
    for n, atoms in enumerate([CRYSTAL, stretched, open_ended, SLAB, SLAB[:-1], CRYSTAL]):
        check(moving, atoms)
        assert len(searches) == n + 1


def test_the_same_edges_are_listed_once():
    atoms, moving = CRYSTAL.copy(), MovingGraph(OPTIONS)
    first = check(moving, atoms)
    atoms.positions[0, 0] += 1e-3
    assert check(moving, atoms) is first
    atoms.positions[0] += 0.24 * np.array([2, 1, 1]) / 6**0.5  # towards neighbours at 4.41 Å
    assert check(moving, atoms) is not first


def test_atoms_that_drift_together_stay_close_to_the_cell():
    atoms, moving = CRYSTAL.copy(), MovingGraph(OPTIONS)
    for _ in range(100):
        atoms.positions += [0.2, 0.0, -0.2]
        check(moving, atoms)
        places, _ = moving.update(atoms.positions, np.array(atoms.cell), atoms.pbc)
        assert -1 < places.min() <= places.max() < 4.6


def test_a_structure_that_falls_apart_is_refused_until_it_is_whole():
    atoms, moving = ase.Atoms("Cu2", positions=[[0, 0, 0], [4.1, 0, 0]]), MovingGraph(OPTIONS)
    check(moving, atoms)
    for way in (0.2, 0.2, 9.0):
        atoms.positions[1, 0] = 4.1 + way
        with pytest.raises(ValueError, match="no atom has a neighbour"):
            moving.update(atoms.positions, np.array(atoms.cell), atoms.pbc)
    atoms.positions[1, 0] = 4.0
    check(moving, atoms)
