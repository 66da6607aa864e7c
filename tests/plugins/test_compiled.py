"""Compiled CHGNet and MACE against the networks themselves, whose oracles are their authors' code.

What cannot be compiled is refused by name.
"""

import pytest
import torch
from ase import Atoms
from ase.build import bulk

from pipeline_atoms.config.graph import GraphOptions
from pipeline_atoms.testing.potentials import build_batch
from pipeline_chgnet.model.network import CHGNet
from pipeline_chgnet.options import CHGNetOptions
from pipeline_kernels.hermite import TOLERANCE
from pipeline_kernels.native import UnavailableError
from pipeline_mace.compiled import splines
from pipeline_mace.model.network import MACE, Facts
from pipeline_mace.options import MACEOptions

GRAPH = GraphOptions(cutoff=4.5, angle_cutoff=3.2, isolated="keep")
MACE_NETWORKS = {
    "default": {"channels": 16},
    "correlation 3": {"channels": 8, "correlation": 3},
    "scalars": {"channels": 8, "max_l": 0, "lmax": 2},
    "plain interactions": {"channels": 8, "first_interaction": "plain", "interaction": "plain"},
    "plain first": {"channels": 8, "first_interaction": "plain", "max_l": 2},
    "odd channels": {"channels": 5, "radial_features": [16]},
    "three layers": {"channels": 8, "layers": 3, "lmax": 2, "independent_couplings": True},
    "one layer": {"channels": 8, "layers": 1},
    "plain PyTorch": {"channels": 8, "kernels": "reference"},
    "density": {"channels": 8, "normalization": "density"},
    "density, plain": {"channels": 8, "normalization": "density", "interaction": "plain"},
    "transform": {"channels": 8, "distance_transform": "agnesi", "radial_functions": 6},
    "repulsion": {"channels": 8, "pair_repulsion": True, "envelope_power": 6},
    "published": {
        "channels": 8,
        "normalization": "density",
        "distance_transform": "agnesi",
        "pair_repulsion": True,
        "heads": ["low", "high"],
        "max_l": 0,
    },
    "levels": {"channels": 8, "heads": ["low", "high"], "readout_features": 5},
    "tanh": {"channels": 8, "gate": "tanh"},
    "no gate": {"channels": 8, "gate": "none", "scale_shift": False},
}
SIZES = {"radial_functions": 7, "angular_functions": 5}
WIDTHS = {"atom_features": 16, "bond_features": 16, "angle_features": 16, "hidden_features": 16}
CHGNET_NETWORKS = {
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
NETWORKS = [("mace", name) for name in MACE_NETWORKS] + [("chgnet", n) for n in CHGNET_NETWORKS]
LOADERS = {
    "mace": ["equivariant.tensor_product.cpu.count_lanes"],
    "chgnet": [f"{name}.cpu.load_library" for name in ("hermite", "message.gated")]
    + ["message.segments.cpu.load_library"],
}
"""What says whether there is a compiler."""


def make_mace(**options):
    torch.manual_seed(3)
    facts = Facts(("Al", "Cu", "Ag"), 14.0)
    network = MACE(MACEOptions(**options), facts, GRAPH).double().eval().requires_grad_(False)
    network.scale.fill_(0.7)
    network.shift.fill_(-1.3)
    network.atom_energies[29] = -11.0
    return network


def make_chgnet(**options):
    torch.manual_seed(3)
    network = CHGNet(CHGNetOptions(**SIZES | WIDTHS | options), GRAPH).double().eval()
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if "gain" in name or "shift" in name or "norm" in name:
                parameter.add_(0.3 * torch.randn_like(parameter))  # as after a training
    network.atom_energies[29] = -11.0
    return network.requires_grad_(False)


def make_named(plugin, name):
    if plugin == "mace":
        return make_mace(**MACE_NETWORKS[name])
    return make_chgnet(**CHGNET_NETWORKS[name])


def make_structures():
    """Return a crystal of Cu and Al without Ag, and a cluster of Ag."""
    both = bulk("Cu", cubic=True) * (2, 1, 1)
    both.symbols[::3] = "Al"
    both.rattle(0.15, seed=0)
    both.set_cell(both.cell * [1.0, 1.02, 0.97], scale_atoms=True)
    cluster = bulk("Ag", cubic=True)
    cluster.pbc = False
    cluster.rattle(0.1, seed=1)
    return [both, cluster]


def predict(module, dtype=torch.float64, **fields):
    """Predict these, and of CHGNet two atoms without an angle, and one without a neighbour."""
    others = [Atoms("MgO", [[0, 0, 0], [0, 0, 4.0]]), Atoms("He")]
    structures = make_structures() + (others if "chgnet" in type(module).__module__ else [])
    with torch.no_grad():
        return module(build_batch(structures, GRAPH, dtype) | fields)


@pytest.mark.slow
@pytest.mark.parametrize(("plugin", "name"), NETWORKS)
def test_predictions_are_those_of_the_network(plugin, name):
    network = make_named(plugin, name)
    fast = network.compile_inference()
    assert fast.spline_error <= TOLERANCE
    expected, actual = predict(network), predict(fast)
    assert actual.keys() == expected.keys()
    for key, values in expected.items():
        assert actual[key].dtype == values.dtype
        size = float(values.abs().max())
        assert size > 1e-4
        torch.testing.assert_close(actual[key], values, rtol=0, atol=1e-7 * max(size, 1))


@pytest.mark.parametrize(("plugin", "name"), [("mace", "correlation 3"), ("chgnet", "default")])
def test_single_precision_is_as_good_as_that_of_the_network(plugin, name):
    """But for the rounding of tables, which are as steep as their intervals are short."""
    network = make_named(plugin, name)
    expected = predict(network)["forces"]
    actual = predict(network.compile_inference().float(), torch.float32)["forces"]
    assert float((actual - expected).abs().max()) < 1e-5 * float(expected.abs().max())


@pytest.mark.parametrize("plugin", LOADERS)
def test_without_a_compiler_predictions_are_the_same(plugin, monkeypatch):
    fast = make_named(plugin, "default").compile_inference()
    expected = predict(fast)

    def refuse(*_, **__):
        raise UnavailableError("none")

    for place in LOADERS[plugin]:
        monkeypatch.setattr(f"pipeline_kernels.{place}", refuse)
    actual = predict(fast)
    for name, values in expected.items():
        torch.testing.assert_close(actual[name], values, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("plugin", "head"), [("mace", [1, 0]), ("chgnet", [1, 0, 1, 0])])
def test_each_sample_has_the_forces_of_its_level(plugin, head):
    if plugin == "mace":
        network = make_mace(channels=8, heads=["low", "high"], pair_repulsion=True)
        network.scale[1], network.shift[1] = 0.2, 4.0
    else:
        network = make_chgnet(energy_heads=["low", "high"])
    network.list_references()[1][29] = 5.0
    fast, head = network.compile_inference(), torch.tensor(head)
    expected, actual = (predict(one, head=head) for one in (network, fast))
    first = predict(network, head=0 * head)["forces"]
    assert float((expected["forces"] - first).abs().max()) > 1e-3
    for name, values in expected.items():
        torch.testing.assert_close(actual[name], values, rtol=0, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["scalars", "published"])
def test_one_model_takes_structures_of_other_elements_and_types(name):
    """It keeps tables of the elements that it last saw."""
    network = make_named("mace", name)
    fast, structures = network.compile_inference(), make_structures()
    for dtype, tolerance in ((torch.float64, 1e-7), (torch.float32, 1e-4)):
        fast.to(dtype)
        for atoms in (structures[0], structures[1], structures[1][:3], structures[0]):
            batch = build_batch([atoms], GRAPH, torch.float64)
            with torch.no_grad():
                expected = network(batch)["forces"]
                actual = fast(build_batch([atoms], GRAPH, dtype))["forces"]
            assert actual.dtype == dtype
            torch.testing.assert_close(actual.double(), expected, rtol=0, atol=tolerance)


def test_every_option_is_compiled():
    varied = {name for options in MACE_NETWORKS.values() for name in options}
    assert set(MACEOptions.model_fields) <= varied


def test_splines_of_too_many_pairs_are_refused(monkeypatch):
    monkeypatch.setattr(splines, "MAX_BYTES", 2**20)
    fast = make_mace(channels=8, distance_transform="agnesi").compile_inference()
    with pytest.raises(ValueError, match=r"between 9 pairs .* use the model without infer.compile"):
        predict(fast)


def test_functions_that_vary_too_fast_are_refused():
    network = make_chgnet()
    network.radial_basis.frequencies *= 1e4
    with pytest.raises(ValueError, match=r"miss what .*; use the model without"):
        network.compile_inference()
