"""Errors, reproducibility, and that no parameter is dead."""

import ase.build
import pytest
import torch

from pipeline_chgnet.model import CHGNet
from pipeline_chgnet.options import CHGNetOptions
from pipeline_core.config.sections import GraphOptions


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return CHGNet(CHGNetOptions())


def train_step(model, batch):
    model.zero_grad()
    sum(value.square().sum() for value in model(batch).values()).backward()
    return {name: p.grad.clone() for name, p in model.named_parameters()}


def test_the_same_bits_again(model, crystal, batch_of):
    batch = batch_of([crystal, ase.build.bulk("NaCl", "rocksalt", 5.6)], torch.float32)
    once, again = train_step(model, batch), train_step(model, batch)

    assert all(torch.equal(once[name], again[name]) for name in once)


def test_moments_have_no_sign(model, crystal, batch_of):
    """The sign of a collinear moment is a choice; the network predicts its size."""
    assert (model(batch_of([crystal], torch.float32))["magmoms"] >= 0).all()


def test_an_element_beyond_plutonium_is_named(model, batch_of):
    americium = ase.build.bulk("Am", "fcc", 4.9)

    with pytest.raises(ValueError, match=r"from H to Pu, not Am \(Z = 95\)"):
        model(batch_of([americium], torch.float32))


def test_a_graph_without_angles_is_explained(model, crystal, batch_of):
    batch = batch_of([crystal], torch.float32, GraphOptions(cutoff=6.0))

    with pytest.raises(ValueError, match=r"set graph\.angle_cutoff"):
        model(batch)


def test_a_narrow_shallow_network(crystal, batch_of):
    options = CHGNetOptions(
        atom_features=6,
        bond_features=5,
        angle_features=4,
        hidden_features=3,
        convolutions=2,
        readout_features=[7, 2],
        radial_functions=4,
        angular_functions=3,
    )
    gradients = train_step(CHGNet(options), batch_of([crystal], torch.float32))

    assert all(gradient.isfinite().all() for gradient in gradients.values())
