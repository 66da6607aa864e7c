"""What CHGNet refuses, and the sign of moments."""

import ase.build
import pytest
import torch

from pipeline_atoms.config.graph import GraphOptions
from pipeline_chgnet.model.network import CHGNet
from pipeline_chgnet.options import CHGNetGraphOptions, CHGNetOptions


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return CHGNet(CHGNetOptions(), CHGNetGraphOptions())


def test_moments_have_no_sign(model, crystal, batch_of):
    """The sign of a collinear moment is a choice; the network predicts its size."""
    assert (model(batch_of([crystal], torch.float32))["magmoms"] >= 0).all()


def test_an_element_beyond_plutonium_is_named(model, batch_of):
    americium = ase.build.bulk("Am", "fcc", 4.9)

    with pytest.raises(ValueError, match=r"from H to Pu, not Am \(Z = 95\)"):
        model(batch_of([americium], torch.float32))


@pytest.mark.parametrize("compiled", [False, True])
def test_a_graph_without_angles_is_explained(compiled, crystal, batch_of):
    module = CHGNet(CHGNetOptions(), CHGNetGraphOptions()).requires_grad_(False)
    module = module.compile_inference() if compiled else module
    batch = batch_of([crystal], torch.float32, GraphOptions(cutoff=6.0))
    with pytest.raises(ValueError, match=r"set graph\.angle_cutoff"):
        module(batch)
