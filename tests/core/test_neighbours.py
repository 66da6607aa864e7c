"""Edges of some atoms, against the search for those of all."""

import numpy as np
import pytest

from pipeline_core.graphs import build_neighbour_graph
from pipeline_core.neighbours import find_edges
from pipeline_core.structure import Structure

CELL = np.array([[6.6, 0, 0], [0.9, 4.4, 0], [-0.2, 0.3, 2.2]])


def make_structure(pbc, spread):
    """Six atoms, moved out of their cell by up to `spread` lattice vectors."""
    rng = np.random.default_rng(0)
    moved = rng.integers(-spread, spread + 1, (6, 3)) * np.array(pbc)
    positions = (rng.random((6, 3)) + moved) @ CELL
    return Structure(np.ones(6, np.int32), positions, CELL, np.array(pbc))


@pytest.mark.parametrize("spread", [0, 2])
@pytest.mark.parametrize("pbc", [(True, True, True), (False, True, False), (False,) * 3])
def test_edges_of_some_atoms_are_those_of_the_graph(pbc, spread):
    """The cell is smaller than the cutoff."""
    atoms = make_structure(pbc, spread)
    index, shift, _ = build_neighbour_graph(atoms.positions, atoms.cell, atoms.pbc, 5.0)
    for receivers in (np.arange(6), np.array([1, 4]), np.zeros(0, np.int64)):
        edges = find_edges(atoms, 5.0, receivers)
        mine = np.isin(index[:, 0], receivers)
        np.testing.assert_array_equal(edges[0], index[mine])
        np.testing.assert_array_equal(edges[1], shift[mine])
    # A cell need not say what is not periodic, as that of a slab whose third vector is zero.
    whole = make_structure((True, True, False), 0)
    slab = Structure(whole.atomic_numbers, whole.positions, CELL * [[1], [1], [0]], whole.pbc)
    ours, expected = (find_edges(s, 5.0, np.arange(6)) for s in (slab, whole))
    for one, other in zip(ours, expected, strict=True):
        np.testing.assert_array_equal(one, other)
