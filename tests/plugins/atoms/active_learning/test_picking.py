"""Which structures are picked. Oracles: the formula by hand, rigid shifts, duplicates."""

import numpy as np
import pytest
from ase.build import bulk

from pipeline_atoms.active_learning.picking import (
    Candidate,
    measure_distance,
    measure_spread,
    pick_at_random,
    pick_by_spread,
)


def make_candidates(count, step=0.5):
    """Copies of a cell whose second atom is moved ever farther, of rising spread."""
    cell = bulk("Cu", "fcc", a=3.6, cubic=True)
    found = []
    for number in range(count):
        atoms = cell.copy()
        atoms.positions[1, 0] += step * number
        found.append(Candidate(atoms, "hot", 10.0 * number, float(number)))
    return found


def test_a_shift_of_all_atoms_and_another_image_are_no_distance():
    atoms = bulk("Cu", "fcc", a=3.6, cubic=True)
    moved = atoms.copy()
    moved.positions += [0.3, -1.0, 0.2]
    moved.positions[2] += atoms.cell[0]
    assert measure_distance(atoms, moved) == pytest.approx(0.0, abs=1e-12)
    assert measure_distance(atoms, atoms.repeat((2, 1, 1))) == np.inf
    moved.set_cell(atoms.cell[:] * 1.01, scale_atoms=True)
    assert measure_distance(atoms, moved) == pytest.approx(0.036 / 2, rel=1e-6)


def test_near_duplicates_are_passed_over():
    candidates = make_candidates(4)
    twin = Candidate(candidates[3].atoms.copy(), "hot", 31.0, 9.0)
    picks, distance = pick_by_spread([*candidates, twin], [candidates[2].atoms], 2, 0.1)
    assert [pick.spread for pick in picks] == [9.0, 1.0]
    assert distance == 0.1
    deviations = np.zeros((3, 3))  # eV/Å; the atom counts on which models differ most
    deviations[1], deviations[2, 0] = [3, 0, 4], 4.9
    assert measure_spread(deviations) == pytest.approx(5.0)


def test_the_distance_is_halved_until_there_are_enough():
    picks, distance = pick_by_spread(make_candidates(3, step=0.1), [], 3, 0.4)
    assert len(picks) == 3
    assert distance in (0.025, 0.0125)
    with pytest.raises(ValueError, match="do not hold 3 different ones"):
        pick_by_spread(make_candidates(3, step=0.0), [], 3, 0.4)


def test_random_picks_are_those_of_the_seed():
    candidates = make_candidates(9)
    one = pick_at_random(candidates, 4, seed=1)
    assert one == pick_at_random(candidates, 4, seed=1)
    assert len({pick.spread for pick in one}) == 4
    with pytest.raises(ValueError, match="fewer than the 10"):
        pick_at_random(candidates, 10, seed=1)
