"""Oracle: numbers worked out by hand."""

import numpy as np
import pytest
import torch

from pipeline_core.evaluation.breakdown import MOST_GROUPS, Breakdown
from pipeline_core.evaluation.predict import Window
from pipeline_core.fields import Field
from pipeline_core.task import Quantity


def make_window(start, energies, predicted, value):
    """Two samples, of one and of three atoms, with an energy and a plugin's own field of atoms."""
    batch = {
        "atom_offsets": torch.tensor([0, 1, 4]),
        "atom_sample": torch.tensor([0, 1, 1, 1]),
        "atomic_numbers": torch.tensor([8, 72, 72, 8]),
        "energy": torch.tensor(energies, dtype=torch.float64),
        "charge": torch.zeros(4),
    }
    outputs = {"energy": torch.tensor(predicted), "charge": torch.full((4,), value)}
    return Window(start, batch, outputs)


CHARGE = Field("charge", (), "e", "atom", "f8", "Partial charge.", label=True)
QUANTITIES = (Quantity("energy", per_atom=True), Quantity("charge", own_field=CHARGE))


def test_by_hand():
    breakdown = Breakdown(QUANTITIES, np.array(["a", "b", "b", "b"], dtype=object))
    breakdown.add(make_window(0, [1.0, 6.0], [2.0, 9.0], 0.5))
    breakdown.add(make_window(2, [1.0, np.nan], [1.0, 0.0], 1.0))
    report = breakdown.report()

    assert report["n_samples"] == 4
    maes = {name: metrics["mae"] for name, metrics in report["quantities"].items()}
    assert maes == pytest.approx({"energy": 4 / 3, "energy_per_atom": 2 / 3, "charge": 0.75})
    assert report["quantities"]["energy_per_atom"]["label_mean_absolute"] == pytest.approx(4 / 3)
    assert report["quantities"]["charge"]["unit"] == "e"
    assert report["groups"]["a"]["charge"]["count"] == 1
    assert report["groups"]["b"]["charge"]["count"] == 7
    assert report["groups"]["b"]["energy"]["mae"] == pytest.approx(1.5)
    # The plugin's field has a row an atom, so it is broken down by element too.
    assert report["elements"]["Hf"]["charge"]["count"] == 4
    assert report["elements"]["O"]["charge"]["mae"] == pytest.approx(0.75)


def test_many_groups_have_no_table():
    names = np.array([f"mp-{n}" for n in range(MOST_GROUPS + 1)], dtype=object)
    breakdown = Breakdown(QUANTITIES, names)
    breakdown.add(make_window(0, [1.0, 6.0], [2.0, 9.0], 0.5))
    assert breakdown.report()["groups"] == {}
    # Rows of atoms are no rows of samples, even if there are as many.
    lone = {"atom_offsets": torch.tensor([0, 1]), "atom_sample": torch.tensor([0])}
    batch = lone | {"atomic_numbers": torch.tensor([8]), "charge": torch.zeros(1)}
    breakdown = Breakdown(QUANTITIES[1:], None)
    breakdown.add(Window(0, batch, {"charge": torch.ones(1)}))
    assert breakdown.report()["elements"]["O"]["charge"]["mae"] == 1


def test_quantities_that_cannot_be_compared_are_explained():
    breakdown = Breakdown((Quantity("forces"),), None)
    lacking = make_window(0, [1.0, 6.0], [2.0, 9.0], 0.5)
    lacking.batch["forces"] = torch.zeros(4, 3)
    with pytest.raises(ValueError, match=r"does not predict 'forces', only energy, charge"):
        breakdown.add(lacking)
    with pytest.raises(ValueError, match=r"'dipole' has a field called 'charge'"):
        Quantity("dipole", own_field=CHARGE)
