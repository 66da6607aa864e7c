"""Losses of labelled fields. Oracles: numbers worked out by hand, torch's own loss functions."""

import pytest
import torch
from torch.nn import functional
from torch.testing import assert_close

from pipeline_core.config.sections import LossTerm
from pipeline_core.task import Quantity
from pipeline_core.training.objective import LabelObjective
from pipeline_core.training.residuals import compute_residuals

NAN = float("nan")
ENERGY, FORCES = Quantity("energy", per_atom=True), Quantity("forces")
STRESS = Quantity("stress")


def make_case():
    """Two samples, of 2 and 4 atoms."""
    torch.manual_seed(0)
    batch = {
        "atom_offsets": torch.tensor([0, 2, 6]),
        "energy": torch.tensor([1.0, -3.0], dtype=torch.float64),
        "forces": torch.randn(6, 3),
    }
    outputs = {
        "energy": torch.tensor([2.0, 5.0], dtype=torch.float64, requires_grad=True),
        "forces": torch.randn(6, 3, requires_grad=True),
    }
    return batch, outputs


def test_by_hand():
    batch, outputs = make_case()
    terms = {"energy": LossTerm(kind="mse", weight=3.0), "forces": LossTerm(kind="mae")}
    objective = LabelObjective(terms, (ENERGY, FORCES))
    assert objective.weights == {"energy": 3.0, "forces": 1.0}
    assert {n: int(c) for n, c in objective.counts(batch).items()} == {"energy": 2, "forces": 18}
    # residuals per atom are (2 - 1) / 2 = 0.5 and (5 + 3) / 4 = 2
    assert objective.sums(outputs, batch)["energy"].item() == pytest.approx(0.25 + 4.0)


@pytest.mark.parametrize(
    ("term", "function"),
    [
        (LossTerm(kind="mse"), functional.mse_loss),
        (LossTerm(kind="mae"), functional.l1_loss),
        (LossTerm(kind="huber", delta=0.3), lambda p, t: functional.huber_loss(p, t, delta=0.3)),
    ],
)
def test_kinds(term, function):
    batch, outputs = make_case()
    objective = LabelObjective({"forces": term}, (FORCES,))
    mean = objective.sums(outputs, batch)["forces"] / objective.counts(batch)["forces"]
    assert_close(mean, function(outputs["forces"], batch["forces"]))


def test_units():
    stress = torch.randn(2, 3, 3, dtype=torch.float64)
    batch = {"stress": torch.zeros(2, 3, 3, dtype=torch.float64)}
    objective = LabelObjective({"stress": LossTerm(kind="mae", unit="GPa")}, (STRESS,))
    expected = stress.abs().sum() * 160.21766208  # GPa in an eV/Å³, CODATA 2018
    assert_close(objective.sums({"stress": stress}, batch)["stress"], expected, rtol=1e-8, atol=0)


def test_missing_labels_count_for_nothing():
    batch, outputs = make_case()
    objective = LabelObjective({"forces": LossTerm(), "energy": LossTerm()}, (ENERGY, FORCES))
    batch["forces"][:2] = NAN
    batch["energy"][:] = NAN
    assert {n: int(c) for n, c in objective.counts(batch).items()} == {"energy": 0, "forces": 12}
    sums = objective.sums(outputs, batch)
    assert sums["energy"].item() == 0
    sum(sums.values()).backward()  # the term without labels is connected too
    assert outputs["energy"].grad.tolist() == [0, 0]
    assert not outputs["forces"].grad[:2].any()
    assert outputs["forces"].grad[2:].isfinite().all()
    assert outputs["forces"].grad[2:].any()


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        ({"forcess": LossTerm()}, r"train.loss.forcess: .* only energy, forces"),
        ({"forces": LossTerm(unit="eV/ang")}, r"train.loss.forces.unit: .*did you mean"),
        ({"energy": LossTerm(unit="GPa")}, r"train.loss.energy.unit: unknown unit"),
        ({"charge": LossTerm(unit="e")}, "no units to choose from"),
    ],
)
def test_wrong_terms_are_refused(loss, message):
    charge = [Quantity("charge")] if "charge" in loss else []
    with pytest.raises(ValueError, match=message):
        LabelObjective(loss, (ENERGY, FORCES, *charge))


BATCH = {
    "atom_offsets": torch.tensor([0, 2, 6]),
    "energy": torch.tensor([1.0, NAN]),
    "dipole": torch.tensor([[1.0, 2.0, 3.0], [4.0, NAN, 6.0]]),
}


def test_per_atom_and_missing():
    outputs = {"energy": torch.tensor([5.0, 7.0], requires_grad=True)}
    difference, present = compute_residuals(Quantity("energy", per_atom=True), outputs, BATCH)
    assert difference.tolist() == [2.0, 0.0]
    assert present.tolist() == [True, False]
    difference.sum().backward()
    assert outputs["energy"].grad.tolist() == [0.5, 0.0]
    outputs = {"dipole": torch.zeros(2, 3)}
    difference, _ = compute_residuals(Quantity("dipole", per_atom=True), outputs, BATCH)
    assert difference.tolist() == [[-0.5, -1.0, -1.5], [-1.0, 0.0, -1.5]]


@pytest.mark.parametrize(
    ("name", "outputs", "message"),
    [
        ("energy", {"forces": torch.zeros(3)}, "does not predict 'energy', only forces"),
        ("energy", {"energy": torch.zeros(2, 1)}, r"shape \(2, 1\), its label \(2,\)"),
        ("stress", {"stress": torch.zeros(2)}, "carry no label 'stress'"),
    ],
)
def test_what_does_not_fit_is_named(name, outputs, message):
    with pytest.raises(ValueError, match=message):
        compute_residuals(Quantity(name), outputs, BATCH)
