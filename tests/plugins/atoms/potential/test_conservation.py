"""How far forces are from a gradient. Oracle: forces whose Jacobian is known."""

import pytest
import torch

from pipeline_atoms.potential.conservation import measure_conservation

GENERATOR = torch.Generator().manual_seed(0)
MATRIX = torch.randn(60, 60, generator=GENERATOR, dtype=torch.float64)


class Linear(torch.nn.Module):
    """F = J x in two structures of 20 atoms, with E = -x·J x / 2."""

    def __init__(self, symmetric, antisymmetric):
        super().__init__()
        matrix = symmetric * (MATRIX + MATRIX.T) + antisymmetric * (MATRIX - MATRIX.T)
        self.jacobian = torch.nn.Parameter(matrix)

    def forward(self, batch):
        x = batch["positions"].reshape(2, 60)
        forces = x @ self.jacobian.T
        return {"forces": forces.reshape(40, 3), "energy": -(x * forces).sum(1) / 2}


@pytest.fixture
def batch():
    return {
        "positions": torch.randn(40, 3, generator=GENERATOR),
        "atom_sample": torch.arange(2).repeat_interleave(20),
        "atom_offsets": torch.tensor([0, 20, 40]),
        "atomic_numbers": torch.ones(40, dtype=torch.int64),
        "cell": torch.zeros(2, 3, 3),
        "pbc": torch.zeros(2, 3, dtype=torch.bool),
    }


def test_a_gradient_has_neither_and_the_module_is_left_as_it_is(batch):
    measured = measure_conservation(Linear(1.0, 0.0), batch)
    assert measured["curl"] < 1e-9
    assert measured["mismatch"] < 1e-9
    model = Linear(1.0, 0.0).float().train()
    measure_conservation(model, batch)
    assert model.training
    assert model.jacobian.dtype == torch.float32


def test_the_ratio_of_antisymmetric_to_symmetric_part_is_found(batch):
    model = Linear(1.0, 0.4)
    jacobian = model.jacobian.detach()
    part, other = jacobian - jacobian.T, jacobian + jacobian.T

    seeds = [measure_conservation(model, batch, seed)["curl"] ** 2 for seed in range(20)]

    expected = float(part.norm() / other.norm())
    assert (sum(seeds) / 20) ** 0.5 == pytest.approx(expected, rel=0.1)


def test_forces_of_another_energy_do_not_fit_it(batch):
    class Halved(Linear):
        def forward(self, batch):
            outputs = super().forward(batch)
            return outputs | {"energy": 0.5 * outputs["energy"]}

    measured = measure_conservation(Halved(1.0, 0.0), batch)

    assert measured["curl"] < 1e-9
    assert measured["mismatch"] == pytest.approx(0.5, rel=1e-6)
