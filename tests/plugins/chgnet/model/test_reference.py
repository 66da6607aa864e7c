"""Fused messages and the batched basis against the formulas, one operation after the other.

Oracle of the gradient: finite differences in double precision.
"""

from itertools import product

import ase.build
import pytest
import torch
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from pipeline_chgnet.model.network import CHGNet
from pipeline_chgnet.options import CHGNetGraphOptions, CHGNetOptions
from tiers import run_first

PLAIN = {"kernels": "reference", "basis": "serial"}
SWITCHES = [*({name: value} for name, value in PLAIN.items()), PLAIN]
UPDATES = ["sequential", "parallel"]
CLOSE = {torch.float32: 1e-5, torch.float64: 1e-10}
FIRST = [(PLAIN, updates, torch.float64) for updates in UPDATES]
FIRST.append((PLAIN, "parallel", torch.float32))
FIELDS = ("energy", "forces", "stress", "magmoms")


def make_network(dtype, **options):
    torch.manual_seed(0)
    return CHGNet(CHGNetOptions(**options), CHGNetGraphOptions()).to(dtype)


def train(network, batch):
    outputs = network(batch)
    sum(outputs[name].square().sum() for name in FIELDS).backward()
    return outputs, {name: p.grad for name, p in network.named_parameters()}


@pytest.fixture
def batch(crystal, batch_of):
    structures = crystal, ase.build.bulk("Kr", "fcc", 7.0), ase.build.molecule("H2O")
    return lambda dtype: batch_of(structures, dtype)


@pytest.mark.slow
@pytest.mark.parametrize("case", run_first(product(SWITCHES, UPDATES, CLOSE), *FIRST))
def test_the_same_predictions_and_gradients(case, batch):
    switch, updates, dtype = case
    close = CLOSE[dtype]
    outputs, gradients = train(make_network(dtype, updates=updates), batch(dtype))
    plain, by_plain = train(make_network(dtype, updates=updates, **switch), batch(dtype))

    for name in FIELDS:
        torch.testing.assert_close(outputs[name], plain[name], rtol=close, atol=close)
    for name, expected in by_plain.items():
        bound = max(10 * close, 1e-9) * float(expected.abs().max().clamp(min=1e-3))
        assert (gradients[name] - expected).abs().max() < bound, name


def test_published_weights_can_be_computed_plainly(crystal, batch_of):
    pytest.importorskip("chgnet")
    plain = CHGNet(CHGNetOptions(**PLAIN), CHGNetGraphOptions())
    plain.load_published("0.3.0")
    batch = batch_of([crystal], torch.float32)
    with torch.no_grad():
        expected, outputs = CHGNet.published()(batch), plain(batch)
    for name in FIELDS:
        torch.testing.assert_close(outputs[name], expected[name], rtol=1e-5, atol=1e-5)


def test_maps_are_kept_until_a_parameter_changes(crystal, batch_of):
    network = make_network(torch.float64).requires_grad_(False)
    batch = batch_of([crystal], torch.float64)
    perceptron = network.atom_convolutions[0].perceptron
    with torch.no_grad():
        before, kept = network(batch), perceptron.split_maps()
        assert perceptron.split_maps() is kept
        perceptron.second_weight *= 1.5
        changed = network(batch)
        trained = network.requires_grad_(True)(batch)
    assert perceptron.split_maps() is not kept
    assert not torch.equal(before["energy"], changed["energy"])
    assert torch.equal(changed["energy"], trained["energy"])


@pytest.mark.slow
def test_the_gradient_of_the_loss_is_that_of_finite_differences(crystal, batch_of):
    """The loss holds forces and stress, so its gradient holds second derivatives of the energy."""
    sizes = dict.fromkeys(["atom_features", "bond_features", "angle_features"], 5)
    sizes |= {"hidden_features": 5, "readout_features": [4], "radial_functions": 5}
    network = make_network(torch.float64, **sizes, angular_functions=5)
    squeezed = ase.Atoms("H2", positions=[[0, 0, 0], [0, 0.1, 0.9]], cell=[3, 3.3, 2.9], pbc=True)
    batch, parameters = batch_of([crystal, squeezed], torch.float64), list(network.parameters())
    start, h = parameters_to_vector(parameters).detach(), 1e-4

    def compute_loss(step=0.0):
        vector_to_parameters(start + step, parameters)
        weights, outputs = zip(FIELDS, (1.0, 3.0, 500.0, 0.7), strict=True), network(batch)
        return sum((weight * outputs[name].square()).sum() for name, weight in weights)

    gradient = parameters_to_vector(torch.autograd.grad(compute_loss(), parameters))
    for direction in torch.randn(5, len(start), dtype=torch.float64):
        near, far = (compute_loss(k * h * direction) - compute_loss(-k * h * direction)
                     for k in (1, 2))  # fmt: skip
        slope = (8 * near - far).item() / (12 * h)  # of fourth order
        assert (gradient @ direction).item() == pytest.approx(slope, rel=1e-6)
