"""Calculators whose structures ranks divide. Oracle: the same calculator on one rank."""

import json

import numpy as np
import pytest

from forked_ranks import run_on_ranks
from plugins.atoms.calculators.divided_on_ranks import follow_atoms, make_calculators, make_gas
from tiers import run_first

pytestmark = [pytest.mark.mpi, pytest.mark.slow]
MODELS = ("pair", "mace", "chgnet", "compiled mace", "compiled chgnet")


@pytest.fixture(scope="module", params=run_first(MODELS, "pair", "compiled mace"))
def model(request):
    return request.param


@pytest.fixture(scope="module")
def outcome(tmp_path_factory, model):
    folder = tmp_path_factory.mktemp("ranks")
    done = run_on_ranks("plugins.atoms.calculators.divided_on_ranks", [folder, model], 3)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "outcome.json").read_text())[model]


def test_moving_atoms_have_the_energies_of_one_rank(model, outcome):
    atoms = make_gas()
    atoms.calc = make_calculators()[model]
    expected, ours = follow_atoms(atoms), outcome
    for name, values in expected["start"].items():
        scale = max(1.0, np.abs(values).max())
        np.testing.assert_allclose(ours["start"][name], values, rtol=0, atol=1e-10 * scale)
    assert np.ptp(expected["energies"]) > 1e-3
    np.testing.assert_allclose(ours["energies"], expected["energies"], rtol=1e-9)


def test_atoms_migrate_when_neighbours_are_searched_anew(outcome):
    assert 1 < outcome["searches"] < 14
    assert outcome["migrated"] > 0


def test_mistakes_are_told_and_end_nothing(outcome):
    place, alone, element, few = outcome["mistakes"]
    assert "in one place" in place
    assert "no atom has a neighbour within" in alone
    assert "not on Cu" in element
    assert "2 atoms cannot be divided between 3 ranks" in few


def test_interrupted_dynamics_goes_on_to_the_bit(outcome):
    assert outcome["broken"] is None
    assert outcome["goes_on"]


@pytest.mark.parametrize("starved", [0, 2])
def test_a_rank_without_memory_for_neighbours_ends_all(tmp_path, starved):
    done = run_on_ranks("plugins.atoms.calculators.divided_on_ranks", [tmp_path, starved], 3)
    assert done.returncode != 0
    assert "edges within" in done.stderr
    assert "0 bytes of memory are free" in done.stderr
    assert ("start the ranks again" in done.stderr) == (starved == 0), "who goes on is told"
