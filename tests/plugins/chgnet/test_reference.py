"""Fused messages and the batched basis against the formulas, one operation after the other."""

from itertools import product

import ase.build
import pytest
import torch

from pipeline_chgnet.model import CHGNet
from pipeline_chgnet.options import CHGNetOptions
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
    return CHGNet(CHGNetOptions(**options)).to(dtype)


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
    plain = CHGNet(CHGNetOptions(**PLAIN))
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
