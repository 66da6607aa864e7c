"""Prediction minus label."""

import pytest
import torch

from pipeline_core.residuals import compute_residuals
from pipeline_core.task import Quantity

NAN = float("nan")
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
