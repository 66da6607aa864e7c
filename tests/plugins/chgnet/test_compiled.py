"""Compiled CHGNet against the network itself, whose oracle is the package chgnet (see parity)."""

import pytest
import torch
from ase import Atoms
from ase.build import bulk

from pipeline_chgnet.model import CHGNet
from pipeline_chgnet.options import CHGNetOptions
from pipeline_core.config.sections import GraphOptions
from pipeline_core.testing.potentials import build_batch
from pipeline_kernels import native
from pipeline_kernels.hermite import TOLERANCE

GRAPH = GraphOptions(cutoff=4.5, angle_cutoff=3.2, isolated="keep")
SIZES = {"cutoff": 4.5, "angle_cutoff": 3.2, "radial_functions": 7, "angular_functions": 5}
WIDTHS = {"atom_features": 16, "bond_features": 16, "angle_features": 16, "hidden_features": 16}
NETWORKS = {
    "default": {},
    "odd widths": {
        "atom_features": 5,
        "bond_features": 7,
        "angle_features": 3,
        "hidden_features": 9,
        "readout_features": [4],
    },
    "parallel": {"updates": "parallel"},
    "two convolutions": {"convolutions": 2},
    "two, parallel": {"convolutions": 2, "updates": "parallel"},
    "one convolution": {"convolutions": 1},
    "five convolutions": {"convolutions": 5},
    "levels": {"energy_heads": ["low", "high"]},
    "pair": {"heads": "pair"},
    "paper": {"heads": "paper", "updates": "parallel"},
    "plain PyTorch": {"kernels": "reference", "basis": "serial"},
}


def make_network(**options):
    torch.manual_seed(3)
    network = CHGNet(CHGNetOptions(**SIZES | WIDTHS | options)).double().eval()
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if "gain" in name or "shift" in name or "norm" in name:
                parameter.add_(0.3 * torch.randn_like(parameter))  # as after a training
    network.atom_energies[29] = -11.0
    return network.requires_grad_(False)


def make_structures():
    """Return a crystal, a cluster, two atoms without an angle, and one without a neighbour."""
    both = bulk("Cu", cubic=True) * (2, 1, 1)
    both.symbols[::3] = "Al"
    both.rattle(0.15, seed=0)
    both.set_cell(both.cell * [1.0, 1.02, 0.97], scale_atoms=True)
    cluster = bulk("Ag", cubic=True)
    cluster.pbc = False
    cluster.rattle(0.1, seed=1)
    return [both, cluster, Atoms("MgO", [[0, 0, 0], [0, 0, 4.0]]), Atoms("He")]


def predict(module, structures, dtype=torch.float64, **fields):
    with torch.no_grad():
        return module(build_batch(structures, GRAPH, dtype) | fields)


@pytest.mark.parametrize("name", NETWORKS)
def test_predictions_are_those_of_the_network(name):
    network = make_network(**NETWORKS[name])
    fast = network.compile_inference()
    assert fast.spline_error <= TOLERANCE
    expected, actual = (predict(one, make_structures()) for one in (network, fast))
    assert actual.keys() == expected.keys()
    for key, values in expected.items():
        assert actual[key].dtype == values.dtype
        size = float(values.abs().max())
        assert size > 1e-4
        torch.testing.assert_close(actual[key], values, rtol=0, atol=1e-7 * max(size, 1))


def test_each_sample_has_the_forces_of_its_level():
    network = make_network(energy_heads=["low", "high"])
    network.list_references()[1][29] = 5.0
    fast = network.compile_inference()
    structures, head = make_structures(), torch.tensor([1, 0, 1, 0])
    expected, actual = (predict(one, structures, head=head) for one in (network, fast))
    others = predict(network, structures)["forces"]
    assert float((expected["forces"] - others).abs().max()) > 1e-3
    for name, values in expected.items():
        torch.testing.assert_close(actual[name], values, rtol=0, atol=1e-7)


def test_single_precision_is_as_good_as_that_of_the_network():
    """But for the rounding of tables, which are as steep as their intervals are short."""
    network, structures = make_network(), make_structures()
    expected = predict(network, structures)["forces"]
    actual = predict(network.compile_inference().float(), structures, torch.float32)["forces"]
    assert float((actual - expected).abs().max()) < 1e-5 * float(expected.abs().max())


def test_the_published_network_is_compiled(trained, crystal, batch_of):
    network = trained(torch.float64).requires_grad_(False)
    fast, batch = network.compile_inference(), batch_of([crystal], torch.float64)
    with torch.no_grad():
        expected, actual = network(batch), fast(batch)
    for name, tolerance in {
        "energy": 4e-6,
        "forces": 1e-5,
        "stress": 1e-7,
        "magmoms": 1e-6,
    }.items():
        torch.testing.assert_close(actual[name], expected[name], rtol=0, atol=tolerance)


def test_without_a_compiler_predictions_are_the_same(monkeypatch):
    fast, structures = make_network().compile_inference(), make_structures()
    expected = predict(fast, structures)

    def refuse(*_, **__):
        raise native.UnavailableError("none")

    for name in ("hermite", "message.gated", "message.segments"):
        monkeypatch.setattr(f"pipeline_kernels.{name}.cpu.load_library", refuse)
    actual = predict(fast, structures)
    for name, values in expected.items():
        torch.testing.assert_close(actual[name], values, rtol=0, atol=1e-9)


def test_functions_that_vary_too_fast_are_refused():
    network = make_network()
    network.radial_basis.frequencies *= 1e4
    with pytest.raises(ValueError, match=r"miss what .*; use the model without"):
        network.compile_inference()


def test_graphs_without_angles_are_refused():
    batch = build_batch(make_structures()[:1], GraphOptions(cutoff=4.5), torch.float64)
    with pytest.raises(ValueError, match=r"set graph\.angle_cutoff"), torch.no_grad():
        make_network().compile_inference()(batch)
