"""How the amorphous cell of a benchmark is made. Oracle: the crystal."""

import numpy as np
import pytest

from subjects.esp.amorphous import CELL, REPEAT, build_crystal, measure_disorder


def test_the_crystal_fills_the_cell_of_the_paper():
    atoms = build_crystal(REPEAT)
    assert len(atoms) == 3000
    assert (atoms.numbers == 8).sum() == 2000
    np.testing.assert_allclose(atoms.cell.lengths(), CELL)
    small = build_crystal((2, 1, 1))
    assert small.get_volume() / len(small) == pytest.approx(atoms.get_volume() / 3000)


def test_fluorite_has_eight_neighbours_and_moves_as_it_is_moved():
    crystal = build_crystal((2, 2, 2))
    moved = crystal.copy()
    moved.positions += [0.3, 0, -0.4]
    moved.wrap()
    facts = measure_disorder(crystal, moved)
    assert facts["coordination"] == 8
    assert facts["moved_rms"] == pytest.approx(0.5)
    assert facts["nearest"] == pytest.approx(crystal.get_distances(0, range(1, 96), mic=True).min())
