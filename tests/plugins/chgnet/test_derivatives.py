"""Oracle: finite differences, fourth order, in double precision."""

import ase
import pytest
import torch

from pipeline_chgnet.model import CHGNet
from pipeline_chgnet.options import CHGNetOptions

STENCIL = {-2: 1 / 12, -1: -2 / 3, 1: 2 / 3, 2: -1 / 12}


def derivative(function, step):
    return sum(weight * function(n * step) for n, weight in STENCIL.items()) / step


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return CHGNet(CHGNetOptions()).double()


@pytest.fixture(scope="module")
def batch(crystal, batch_of):
    return batch_of([crystal], torch.float64)


def energy(model, batch):
    with torch.no_grad():
        return model(batch)["energy"].sum()


@pytest.mark.parametrize("seed", range(3))
def test_forces(seed, model, batch):
    torch.manual_seed(seed)
    direction = torch.randn(4, 3, dtype=torch.float64)
    with torch.no_grad():
        forces = model(batch)["forces"]

    def moved(step):
        return energy(model, batch | {"positions": batch["positions"] + step * direction})

    expected = -derivative(moved, 1e-3).item()
    assert (forces * direction).sum().item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_stress(seed, model, batch, crystal):
    torch.manual_seed(seed)
    strain = torch.randn(3, 3, dtype=torch.float64)
    strain = (strain + strain.T) / 2
    with torch.no_grad():
        stress = model(batch)["stress"][0]

    def strained(step):
        deformation = torch.eye(3, dtype=torch.float64) + step * strain
        geometry = {name: batch[name] @ deformation for name in ("positions", "cell")}
        return energy(model, batch | geometry)

    expected = derivative(strained, 2e-4).item() / crystal.get_volume()
    assert (stress * strain).sum().item() == pytest.approx(expected, rel=1e-6)


def test_gradient_of_the_training_loss(crystal, batch_of):
    """The loss holds forces and stress, so its gradient holds second derivatives of the energy."""
    torch.manual_seed(0)
    sizes = dict.fromkeys(
        ("atom_features", "bond_features", "angle_features", "hidden_features"), 5
    )
    small = CHGNet(
        CHGNetOptions(**sizes, readout_features=[4], radial_functions=5, angular_functions=5)
    ).double()
    squeezed = ase.Atoms("H2", positions=[[0, 0, 0], [0, 0.1, 0.9]], cell=[3, 3.3, 2.9], pbc=True)
    batch = batch_of([crystal, squeezed], torch.float64)

    def loss():
        outputs = small(batch)
        return sum((weight * outputs[name].square()).sum() for name, weight in WEIGHTS.items())

    loss().backward()
    start = torch.nn.utils.parameters_to_vector(small.parameters()).detach()
    gradient = torch.nn.utils.parameters_to_vector([p.grad for p in small.parameters()])
    for _ in range(5):
        direction = torch.randn_like(start)

        def shifted(step, direction=direction):
            torch.nn.utils.vector_to_parameters(start + step * direction, small.parameters())
            return loss().detach()

        expected = derivative(shifted, 1e-4).item()
        assert (gradient * direction).sum().item() == pytest.approx(expected, rel=1e-6)


WEIGHTS = {"energy": 1.0, "forces": 3.0, "stress": 500.0, "magmoms": 0.7}
