"""Compiled MACE against the network itself, whose oracle is mace-torch (test_parity.py).

What cannot be compiled is refused by name.
"""

import pytest
import torch
from ase.build import bulk

from pipeline_core.config.sections import GraphOptions
from pipeline_core.testing.potentials import build_batch
from pipeline_kernels.equivariant.tensor_product import cpu
from pipeline_kernels.hermite import TOLERANCE
from pipeline_kernels.native import UnavailableError
from pipeline_mace.compiled import tables
from pipeline_mace.model import MACE, Facts
from pipeline_mace.options import MACEOptions

GRAPH = GraphOptions(cutoff=4.5)
NETWORKS = {
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
    "repulsion": {"channels": 8, "pair_repulsion": True, "envelope_power": 6, "cutoff": 4.5},
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


def make_network(**options):
    torch.manual_seed(3)
    facts = Facts(("Al", "Cu", "Ag"), 14.0)
    network = MACE(MACEOptions(**options), facts).double().eval().requires_grad_(False)
    network.scale.fill_(0.7)
    network.shift.fill_(-1.3)
    network.atom_energies[29] = -11.0
    return network


def make_structures():
    both = bulk("Cu", cubic=True) * (2, 1, 1)
    both.symbols[::3] = "Al"  # and no silver
    both.rattle(0.15, seed=0)
    both.set_cell(both.cell * [1.0, 1.02, 0.97], scale_atoms=True)
    cluster = bulk("Ag", cubic=True)
    cluster.pbc = False
    cluster.rattle(0.1, seed=1)
    return [both, cluster]


@pytest.mark.parametrize("name", NETWORKS)
def test_predictions_are_those_of_the_network(name):
    network = make_network(**NETWORKS[name])
    batch = build_batch(make_structures(), GRAPH, torch.float64)
    fast = network.compile_inference()
    with torch.no_grad():
        expected, actual = network(batch), fast(batch)
    assert fast.spline_error <= TOLERANCE
    assert actual.keys() == expected.keys()
    for key, values in expected.items():
        assert actual[key].dtype == values.dtype
        size = float(values.abs().max())
        torch.testing.assert_close(actual[key], values, rtol=0, atol=1e-7 * max(size, 1))


def test_single_precision_is_as_good_as_that_of_the_network():
    network = make_network(channels=16, correlation=3)
    exact, single = (
        build_batch(make_structures(), GRAPH, dtype) for dtype in (torch.float64, torch.float32)
    )
    with torch.no_grad():
        expected = network(exact)["forces"]
        actual = network.compile_inference().float()(single)["forces"]
    assert actual.dtype == torch.float32
    assert float((actual - expected).abs().max()) < 1e-5 * float(expected.abs().max())


@pytest.mark.parametrize("name", ["scalars", "published"])
def test_one_model_takes_structures_of_other_elements_and_types(name):
    """It keeps tables of the elements that it last saw."""
    network = make_network(**NETWORKS[name])
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


def test_without_a_compiler_predictions_are_the_same(monkeypatch):
    network, batch = make_network(channels=16), build_batch(make_structures(), GRAPH, torch.float64)
    fast = network.compile_inference()
    with torch.no_grad():
        expected = fast(batch)

        def refuse(*_):
            raise UnavailableError("none")

        monkeypatch.setattr(cpu, "count_lanes", refuse)
        actual = fast(batch)
    torch.testing.assert_close(actual["forces"], expected["forces"], rtol=0, atol=1e-10)


def test_an_unknown_element_is_named():
    batch = build_batch([bulk("Au")], GRAPH, torch.float64)
    with pytest.raises(ValueError, match="hold Au, but the network was trained on Al, Cu, Ag"):
        make_network(channels=4).compile_inference()(batch)


def test_every_option_is_compiled():
    varied = {name for options in NETWORKS.values() for name in options}
    assert set(MACEOptions.model_fields) <= varied


def test_each_sample_has_the_forces_of_its_level():
    network = make_network(channels=8, heads=["low", "high"], pair_repulsion=True)
    network.scale[1], network.shift[1] = 0.2, 4.0
    network.list_references()[1][29] = 5.0
    fast, head = network.compile_inference(), torch.tensor([1, 0])
    batch = build_batch(make_structures(), GRAPH, torch.float64) | {"head": head}
    with torch.no_grad():
        expected, actual, first = network(batch), fast(batch), network(batch | {"head": 0 * head})
    assert float((expected["forces"] - first["forces"]).abs().max()) > 1e-2
    for name, values in expected.items():
        torch.testing.assert_close(actual[name], values, rtol=0, atol=1e-7)


def test_splines_of_too_many_pairs_are_refused(monkeypatch):
    monkeypatch.setattr(tables, "MAX_BYTES", 2**20)
    network = make_network(channels=8, distance_transform="agnesi")
    fast = network.compile_inference()
    with pytest.raises(ValueError, match=r"between 9 pairs .* use the model without infer.compile"):
        fast(build_batch(make_structures(), GRAPH, torch.float64))


def test_splines_that_miss_their_tolerance_are_refused(monkeypatch):
    monkeypatch.setattr("pipeline_kernels.hermite.tables.TOLERANCE", 0.0)
    with pytest.raises(ValueError, match=r"splines of 2048 intervals miss what .* distances"):
        make_network(channels=4).compile_inference()
