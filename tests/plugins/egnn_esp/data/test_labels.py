"""Blocks of edges. Oracle: the stored blocks themselves."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from pipeline_atoms.graphs import build_neighbour_graph
from pipeline_egnn_esp.data.samples import Labelled
from plugins.egnn_esp.reference import read_matrices_of, read_shipped


@pytest.fixture(params=["hafnia", "chain"])
def matrix(request, water_runs):
    if request.param == "hafnia":
        return read_shipped("cubic-2000K", "006")
    return read_matrices_of(water_runs / "chain", cutoff=10.0)


def build_graph(matrix, cutoff):
    atoms = matrix.structure
    return build_neighbour_graph(atoms.positions, atoms.cell, atoms.pbc, cutoff)[:2]


def test_edges_carry_the_blocks_and_their_transposes(matrix):
    index, shift = build_graph(matrix, 8.0)
    node_blocks, edge_blocks = Labelled(matrix, 0.0, index, shift).make_blocks("hamiltonian")
    stored = {
        (*R, i, j): block
        for R, (i, j), block in zip(
            matrix.block_shift.tolist(),
            matrix.block_atoms.tolist(),
            matrix.iterate_blocks("hamiltonian"),
            strict=True,
        )
    }
    numbers = matrix.structure.atomic_numbers
    for (i, j), R, block in zip(index.tolist(), shift.tolist(), edge_blocks, strict=True):
        key, twin = (*R, i, j), (*(-x for x in R), j, i)
        expected = stored[key] if key in stored else stored[twin].T
        rows, columns = (matrix.basis.find_orbitals(numbers[a]) for a in (i, j))
        assert_array_equal(block[np.ix_(rows, columns)], expected)
        assert np.isfinite(block).sum() == expected.size
    for i, block in enumerate(node_blocks):
        own = matrix.basis.find_orbitals(numbers[i])
        assert_array_equal(block[np.ix_(own, own)], stored[0, 0, 0, i, i])


def test_edges_beyond_the_data_are_marked(matrix):
    index, shift = build_graph(matrix, 12.0)
    near = matrix.take(matrix.lengths <= 6.0)
    _, edge_blocks = Labelled(near, 0.0, index, shift).make_blocks("overlap")
    atoms = matrix.structure
    i, j = index.T
    length = np.linalg.norm(atoms.positions[j] + shift @ atoms.cell - atoms.positions[i], axis=1)
    assert_array_equal(np.isfinite(edge_blocks).any(axis=(1, 2)), length <= 6.0)


def test_blocks_become_the_same_matrices_again(matrix):
    labelled = Labelled(matrix, 0.0, *build_graph(matrix, 12.0))
    for name in ("hamiltonian", "overlap"):
        assert_array_equal(
            labelled.gather_entries(*labelled.make_blocks(name)), getattr(matrix, name)
        )
