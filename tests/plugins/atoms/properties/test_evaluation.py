"""Structures in batches; oracle: the calculator with one after the other."""

import numpy as np
import pytest
from ase.build import bulk
from ase.calculators.emt import EMT

from pipeline_atoms.calculators.calculator import make_run_calculator
from pipeline_atoms.properties import evaluation
from pipeline_atoms.properties.evaluation import evaluate
from plugins.atoms.argon import make_run, make_structures


def test_batches_of_any_size_give_what_single_structures_do(tmp_path, monkeypatch):
    calculator = make_run_calculator(make_run(tmp_path), "cpu")
    structures = make_structures(7)
    structures[2].positions += 3 * np.array(structures[2].cell).sum(axis=0)  # outside of its cell
    single = [
        (calculator.get_property("energy", one), calculator.get_property("forces", one).copy())
        for one in structures
    ]
    for most in (1000, 9, 1):
        monkeypatch.setattr(evaluation, "_BATCH_ATOMS", most)
        evaluate(structures, calculator)
        for one, (energy, forces) in zip(structures, single, strict=True):
            assert one.get_potential_energy() == pytest.approx(energy, abs=1e-6)
            assert one.get_forces() == pytest.approx(forces, abs=1e-6)
    copper = bulk("Cu", cubic=True)
    copper.rattle(0.1, seed=0)
    evaluate([copper], EMT())  # other calculators are asked one by one
    assert copper.get_potential_energy() == EMT().get_property("energy", copper)
    assert np.array_equal(copper.get_forces(), EMT().get_property("forces", copper))
    with pytest.raises(ValueError, match=r"the model was trained on Ar, Kr, not on Cu"):
        evaluate([copper], calculator)
