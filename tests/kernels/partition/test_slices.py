"""Slices. Oracle: slices of lattices.

That a network of one layer is exact on own atoms of a slice:
`tests/plugins/egnn_esp/model/test_slices`.
"""

import numpy as np

from kernels.partition.measuring import measure_partition
from pipeline_kernels.partition import PlaneCoordinates, cut_by_slices

PERIODIC = (True, True, True)


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
