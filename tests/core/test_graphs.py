"""Oracle: ASE's neighbour list, an independent implementation; and symmetry."""

import ase.build
import ase.neighborlist
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_core.config.sections import GraphOptions
from pipeline_core.graphs import build_graph, build_neighbour_graph, list_angles, pair_edges


def sample(atoms):
    return {"positions": atoms.positions, "cell": np.array(atoms.cell), "pbc": atoms.pbc}


def draw_crystal(seed, n_atoms=5, pbc=True):
    rng = np.random.default_rng(seed)
    cell = np.diag(rng.uniform(2.5, 6, 3)) + rng.uniform(-1, 1, (3, 3))
    positions = rng.uniform(-1, 2, (n_atoms, 3)) @ cell
    return ase.Atoms(f"H{n_atoms}", positions=positions, cell=cell, pbc=pbc)


STRUCTURES = {
    "one atom in a cell smaller than the cutoff": ase.build.bulk("Cu", "fcc", 3.6),
    "rocksalt": ase.build.bulk("NaCl", "rocksalt", 5.6, cubic=True),
    "molecule": ase.build.molecule("C6H6"),
    "slab": ase.build.fcc111("Al", (2, 2, 3), vacuum=6.0),
    "triclinic": draw_crystal(1),
    "wire": draw_crystal(2, pbc=(True, False, False)),
}


@pytest.mark.parametrize("name", STRUCTURES)
def test_edges_equal_those_of_ase(name):
    atoms = STRUCTURES[name]
    i, j, shift, distance = ase.neighborlist.neighbor_list("ijSd", atoms, 5.0)
    expected = sorted(zip(i, j, *shift.T, distance.round(8), strict=True))

    index, ours, length = build_neighbour_graph(
        atoms.positions, np.array(atoms.cell), atoms.pbc, cutoff=5.0
    )

    result = sorted(zip(*index.T, *ours.T, length.round(8), strict=True))
    assert np.allclose(np.array(result), np.array(expected))
    assert np.all(np.diff(index[:, 0]) >= 0)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000))
def test_a_bond_joins_an_edge_and_its_reverse(seed):
    atoms = draw_crystal(seed)
    index, shift, _ = build_neighbour_graph(
        atoms.positions, np.array(atoms.cell), atoms.pbc, cutoff=4.0
    )

    edge_bond, bond_edge = pair_edges(index, shift)

    assert np.array_equal(edge_bond[bond_edge], np.arange(len(bond_edge)))
    order = np.argsort(edge_bond, kind="stable")
    for one, other in order.reshape(-1, 2):
        assert np.array_equal(index[one], index[other][::-1])
        assert np.array_equal(shift[one], -shift[other])


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000))
def test_angles_equal_a_search_over_all_pairs(seed):
    atoms = draw_crystal(seed, n_atoms=3)
    index, _, length = build_neighbour_graph(
        atoms.positions, np.array(atoms.cell), atoms.pbc, cutoff=4.0
    )
    short = length < 3.0

    result = list_angles(index[:, 0], short)

    expected = [
        (a, b)
        for a in np.flatnonzero(short)
        for b in np.flatnonzero(short)
        if index[a, 0] == index[b, 0] and a != b
    ]
    assert [tuple(pair) for pair in result] == expected


def test_rocksalt_has_its_textbook_coordination():
    graph = build_graph(sample(STRUCTURES["rocksalt"]), GraphOptions(cutoff=3.0, angle_cutoff=3.0))

    assert len(graph["edge_index"]) == 8 * 6
    assert len(graph["bond_edge"]) == 8 * 3
    assert len(graph["angle_edges"]) == 8 * 6 * 5


def test_the_same_graph_whatever_the_order_of_the_search():
    atoms = STRUCTURES["rocksalt"]
    once = build_graph(sample(atoms), GraphOptions(cutoff=5.0, angle_cutoff=3.0))
    again = build_graph(sample(atoms.copy()), GraphOptions(cutoff=5.0, angle_cutoff=3.0))

    assert all(np.array_equal(once[name], again[name]) for name in once)


def test_a_structure_without_neighbours_is_explained():
    atoms = ase.Atoms("Ar", cell=[20, 20, 20], pbc=True)

    with pytest.raises(ValueError, match=r"no atom has a neighbour within 5 Å; check the unit"):
        build_graph(sample(atoms), GraphOptions(cutoff=5.0))


def test_a_structure_without_neighbours_can_be_kept():
    atoms = ase.Atoms("Ar", cell=[20, 20, 20], pbc=True)
    options = GraphOptions(cutoff=5.0, angle_cutoff=3.0, isolated="keep")
    graph = build_graph(sample(atoms), options)
    assert {name: rows.shape for name, rows in graph.items()} == {
        "edge_index": (0, 2),
        "edge_shift": (0, 3),
        "edge_bond": (0,),
        "bond_edge": (0,),
        "angle_edges": (0, 2),
    }


def test_an_angle_cutoff_beyond_the_cutoff_is_explained():
    with pytest.raises(ValueError, match=r"graph.angle_cutoff 6 is larger than graph.cutoff 5"):
        build_graph(sample(STRUCTURES["rocksalt"]), GraphOptions(cutoff=5.0, angle_cutoff=6.0))
