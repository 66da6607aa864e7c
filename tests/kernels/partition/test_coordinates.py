"""Coordinates in cells of any shape. Oracle: distances to all images, by brute force."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_kernels.partition import PlaneCoordinates

seeds = st.integers(0, 2**32 - 1)
directions = st.tuples(st.booleans(), st.booleans(), st.booleans())


def make_skewed_cell(rng, size):
    return size * (np.eye(3) + rng.uniform(-0.4, 0.4, (3, 3)))


@settings(max_examples=15)
@given(seeds, directions)
def test_edges_are_no_longer_than_the_cutoff_along_any_axis(edges_of, seed, pbc):
    rng = np.random.default_rng(seed)
    cell = make_skewed_cell(rng, 6.0)
    positions = rng.uniform(-9, 9, (25, 3))
    edges, _ = edges_of(positions, cell, pbc, 2.5)
    atoms = PlaneCoordinates.of(positions, cell, pbc, 2.5).open_axes(np.ones(25))
    apart = np.abs(atoms.coordinates[edges[:, 0]] - atoms.coordinates[edges[:, 1]])
    around = np.where(atoms.periodic, atoms.extent - apart, apart)
    assert (np.minimum(apart, np.abs(around)) <= 2.5 + 1e-6).all()
    assert (atoms.coordinates >= 0).all()
    assert (atoms.coordinates <= atoms.extent + 1e-9).all()


def test_a_skewed_cell_of_the_same_lattice_has_the_same_coordinates():
    rng = np.random.default_rng(1)
    positions, cell = rng.uniform(0, 9, (25, 3)), np.diag([5.0, 6.0, 7.0])
    skew = np.array([[1, 0, 0], [3, 1, 0], [-2, 1, 1]])
    one, other = (
        PlaneCoordinates.of(positions, c, (True, True, True), 2.5) for c in (cell, skew @ cell)
    )
    np.testing.assert_allclose(one.extent, [5, 6, 7])
    np.testing.assert_allclose(one.extent, other.extent)
    np.testing.assert_allclose(one.coordinates, other.coordinates, atol=1e-7)


def test_a_gap_as_wide_as_the_cutoff_ends_an_axis():
    heights = np.array([8.5, 9.5, 0.5, 1.5])
    positions = np.stack([np.zeros(4), np.zeros(4), heights], 1)
    wide = PlaneCoordinates.of(positions, np.diag([2.0, 2.0, 10.0]), (True, True, True), 6.9)
    assert wide.periodic.tolist() == [True, True, False]
    assert wide.extent[2] == pytest.approx(3.0)
    np.testing.assert_allclose(wide.coordinates[:, 2], [0, 1, 2, 3], atol=1e-6)
    assert PlaneCoordinates.of(
        positions, np.diag([2.0, 2.0, 10.0]), (True,) * 3, 7.1
    ).periodic.all()


def test_ties_follow_the_other_axes(lattice):
    positions, cell, _ = lattice(2, 2, 2)
    atoms = PlaneCoordinates.of(positions[::-1], cell, (True, True, True), 1.1)
    assert atoms.order_atoms()[0].tolist() == list(range(7, -1, -1))


def test_a_cell_without_volume_is_refused():
    cell = [[1, 0, 0], [2, 0, 0], [0, 0, 1]]
    with pytest.raises(ValueError, match="span no volume"):
        PlaneCoordinates.of(np.zeros((2, 3)), cell, (True, True, False), 1.0)
    PlaneCoordinates.of(np.zeros((2, 3)), cell, (True, False, True), 1.0)
    PlaneCoordinates.of(np.zeros((2, 3)), np.zeros((3, 3)), (False, False, False), 1.0)
