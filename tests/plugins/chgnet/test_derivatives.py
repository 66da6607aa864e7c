"""Oracle: finite differences, fourth order, in double precision."""

import ase
import pytest
import torch

from pipeline_chgnet.model import CHGNet
from pipeline_chgnet.options import CHGNetOptions

STENCIL = {-2: 1 / 12, -1: -2 / 3, 1: 2 / 3, 2: -1 / 12}


def derivative(function, step):
    return sum(weight * function(n * step) for n, weight in STENCIL.items()) / step


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
