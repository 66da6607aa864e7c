"""Oracle: ASE's neighbour list, an independent implementation; and symmetry."""

from dataclasses import replace

import ase.build
import ase.neighborlist
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_atoms.config.graph import GraphOptions
from pipeline_atoms.edge_counts import count_edges_at_least
from pipeline_atoms.graphs import (
    build_graph,
    build_neighbour_graph,
    find_reverse_edges,
    list_angles,
    number_bonds,
    write_graphs,
)
from pipeline_atoms.neighbours import find_edges
from pipeline_atoms.structure import Structure
from pipeline_core.artifacts.samples import SampleFile, SampleWriter
from pipeline_core.fields import FIELDS
from pipeline_core.system import memory


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
    structure = Structure(atoms.numbers, atoms.positions, np.array(atoms.cell), atoms.pbc)
    for receivers in (np.arange(len(atoms)), np.arange(1, len(atoms), 3), np.zeros(0, np.int64)):
        some, shift = find_edges(structure, 5.0, receivers)[:2]
        mine = np.isin(index[:, 0], receivers)
        np.testing.assert_array_equal(some, index[mine])
        np.testing.assert_array_equal(shift, ours[mine])


def test_a_cell_need_not_say_what_is_not_periodic():
    """Such as that of a slab whose third vector is zero."""
    atoms = draw_crystal(3, pbc=(True, True, False))
    whole = Structure(atoms.numbers, atoms.positions, np.array(atoms.cell), atoms.pbc)
    slab = replace(whole, cell=whole.cell * [[1], [1], [0]])
    ours, expected = (find_edges(s, 5.0, np.arange(len(atoms))) for s in (slab, whole))
    for one, other in zip(ours, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000))
def test_a_bond_joins_an_edge_and_its_reverse(seed):
    atoms = draw_crystal(seed)
    index, shift, _ = build_neighbour_graph(
        atoms.positions, np.array(atoms.cell), atoms.pbc, cutoff=4.0
    )

    edge_bond, bond_edge = number_bonds(find_reverse_edges(index, shift))

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


def test_a_structure_without_neighbours_is_explained_or_kept():
    atoms = ase.Atoms("Ar", cell=[20, 20, 20], pbc=True)
    with pytest.raises(ValueError, match=r"no atom has a neighbour within 5 Å; check the unit"):
        build_graph(sample(atoms), GraphOptions(cutoff=5.0))
    options = GraphOptions(cutoff=5.0, angle_cutoff=3.0, isolated="keep")
    graph = build_graph(sample(atoms), options)
    assert {name: rows.shape for name, rows in graph.items()} == {
        "edge_index": (0, 2),
        "edge_shift": (0, 3),
        "edge_bond": (0,),
        "bond_edge": (0,),
        "angle_edges": (0, 2),
    }


@pytest.mark.slow
def test_numbers_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match=r"graph.angle_cutoff 6 is larger than graph.cutoff 5"):
        build_graph(sample(STRUCTURES["rocksalt"]), GraphOptions(cutoff=5.0, angle_cutoff=6.0))
    index = np.array([[0, 10**6], [10**6, 0]])
    shift = np.array([[30_000, 0, 0], [-30_000, 0, 0]])
    with pytest.raises(ValueError, match=r"1000001 atoms lie up to 30000 cells apart.*wrap"):
        find_reverse_edges(index, shift)
    receivers = np.zeros(10**7, np.int64)
    with pytest.raises(ValueError, match=r"1e\+14 angles of 1 atoms, 1e\+14 of each, .* 4.8 PB"):
        list_angles(receivers, receivers == 0)


def test_an_atom_beyond_the_images_that_can_be_stored_is_refused(tmp_path):
    """32,768 cells away: two bytes hold one less."""
    atoms = ase.build.bulk("NaCl", "rocksalt", 5.6, cubic=True)
    options = GraphOptions(cutoff=3.0)
    cells = {"near": 32_766, "far": 32_768}

    for name, n_cells in cells.items():
        moved = atoms.copy()
        moved.positions[3] += n_cells * np.array(moved.cell[0])
        fields = [FIELDS[key] for key in (*sample(moved), "source", "atomic_numbers")]
        with SampleWriter(tmp_path / f"{name}.h5", "data", {}, fields) as writer:
            facts = {"source": np.array("md.xyz, frame 7"), "atomic_numbers": moved.numbers}
            writer.add(sample(moved) | facts)

    write_graphs(tmp_path / "near.h5", tmp_path / "graph.h5", options, {})
    with SampleFile(tmp_path / "graph.h5", "graph") as graph:
        assert np.abs(graph.read(0)["edge_shift"]).max() == 32_767
    with pytest.raises(
        ValueError, match=r"md.xyz, frame 7: edge_shift would be -3276\d, and .*wrap"
    ):
        write_graphs(tmp_path / "far.h5", tmp_path / "none.h5", options, {})
    assert not (tmp_path / "none.h5").exists()


TOO_SMALL = ase.Atoms("Ar", cell=[1e-3] * 3, pbc=True)
TOO_DENSE = ase.Atoms(positions=np.random.default_rng(0).uniform(0, 1, (10**5, 3)))


@pytest.mark.parametrize("atoms", [TOO_SMALL, TOO_DENSE])
def test_more_edges_than_memory_are_refused_before_the_search(atoms, monkeypatch):
    monkeypatch.setattr(memory, "find_free_memory", lambda: 1e10)
    message = rf"edges within 5 Å of {len(atoms)} atoms, .* of each, .* TB, and 10 GB of memory"
    with pytest.raises(ValueError, match=message):
        build_graph(sample(atoms), GraphOptions(cutoff=5.0))


@pytest.mark.parametrize("name", STRUCTURES)
def test_no_more_edges_are_expected_than_there_are(name):
    atoms = STRUCTURES[name]
    cell = np.array(atoms.cell)
    index, _, _ = build_neighbour_graph(atoms.positions, cell, atoms.pbc, 9.0)
    expected = count_edges_at_least(atoms.positions, cell, atoms.pbc, 9.0)
    assert expected <= 1.1 * len(index)
    assert not atoms.pbc.all() or expected > 0.3 * len(index)


@pytest.mark.parametrize("lengths", [(1e6, 2.5, 2.5), (2.5, 1e6, 2.5), (800.0, 700.0, 2.5)])
@pytest.mark.parametrize("pbc", [True, False])
def test_a_structure_that_is_thin_for_its_length_has_its_neighbours(lengths, pbc):
    """Space divided into as many cells as the cutoff asks for would be too many of them."""
    positions = np.array([[0.1, 0.2, 0.3], [0.6, 0.2, 0.3], 0.5 * np.array(lengths)])
    index, _, length = build_neighbour_graph(
        positions, np.diag(lengths), np.array([pbc, pbc, pbc]), 2.0
    )
    assert index.tolist()[0] == [0, 1]
    assert np.isclose(length.min(), 0.5, rtol=1e-12)
    assert 2 not in index


def test_both_searches_of_neighbours_agree(monkeypatch):
    rng = np.random.default_rng(0)
    structure = rng.uniform(0, 20, (50, 3)), np.diag([20.0, 20.0, 9.0]), np.ones(3, dtype=bool)
    usual = build_neighbour_graph(*structure, 4.0)
    monkeypatch.setattr("pipeline_atoms.graphs._is_thin", lambda *_: True)
    for ours, theirs in zip(build_neighbour_graph(*structure, 4.0), usual, strict=True):
        assert np.allclose(ours, theirs, rtol=0, atol=1e-12)
