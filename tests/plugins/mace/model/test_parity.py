"""Our network with the weights of mace-torch 0.3.16 against its predictions.

Oracle: `peer.npz.xz`, which `make_peer.py` has written with mace-torch: random weights, all
combinations of degree and correlation, two strained cells of four atoms, and states of networks
that do what ours does not.
"""

from dataclasses import replace
from functools import cache

import pytest
import torch

from pipeline_atoms.config.graph import GraphOptions
from pipeline_atoms.testing.potentials import build_batch
from pipeline_mace.conversion.peer import INTERACTIONS, PeerOptions
from pipeline_mace.conversion.weights import list_weights, load_from_peer
from pipeline_mace.model.network import MACE, Facts
from pipeline_mace.options import MACEOptions
from plugins.mace.recorded import read_record, read_structures
from tiers import exhaustive, run_first

PLAIN, RESIDUAL = (INTERACTIONS[kind, "average"] for kind in ("plain", "residual"))
CASES = [(max_l, n, RESIDUAL) for max_l in range(3) for n in (1, 2, 3)]
CASES.append((1, 2, PLAIN))
REDUCED = [(2, 1, f"{RESIDUAL}-reduced"), (2, 2, f"{RESIDUAL}-reduced")]
REDUCED.append((1, 3, f"{RESIDUAL}-reduced"))
BASE = CASES[0]
GRAPH = GraphOptions(cutoff=4.0)


@cache
def record():
    return read_record("peer.npz.xz")


def name_of(case):
    return "-".join(map(str, case))


def state_of(name):
    prefix = f"{name}/state/"
    return {
        key.removeprefix(prefix): torch.from_numpy(value)
        for key, value in record().items()
        if key.startswith(prefix)
    }


def list_peer_options(case):
    """What the peer's state does not show."""
    first = PLAIN if case[2] == PLAIN else RESIDUAL
    return PeerOptions(17.0, "silu", True, (first, RESIDUAL), ("default",))


def make_network(max_l, correlation, first, *, independent=False):
    """Our network with the peer's options, in double precision."""
    options = MACEOptions(
        channels=4,
        max_l=max_l,
        lmax=3 if max_l else 2,
        correlation=correlation,
        independent_couplings=independent,
        first_interaction="plain" if first == PLAIN else "residual",
        radial_functions=5,
        radial_features=[8, 8],
        readout_features=6,
    )
    return MACE(options, Facts(("O", "Al", "Cu"), 17.0), GRAPH).double().eval()


def build_ours(case, *, independent=False):
    """The network with the peer's weights, and the peer's state."""
    module, state = make_network(*case, independent=independent), state_of(name_of(case))
    load_from_peer(module, state, list_peer_options(case))
    return module, state


def make_batch(dtype):
    return build_batch(read_structures(record()), GRAPH, dtype)


def check_predictions(module, case, dtype, tolerance):
    with torch.no_grad():
        predicted = module.to(dtype)(make_batch(dtype))
    for name in ("energy", "forces", "stress"):
        expected = torch.from_numpy(record()[f"{name_of(case)}/{name}"])
        scale = max(1.0, float(expected.abs().max()))
        error = (predicted[name].double() - expected).abs().max() / scale
        assert error < tolerance, (name, float(error))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float64, 1e-10), pytest.param(torch.float32, 1e-5, marks=exhaustive)],
)
def test_energy_forces_and_stress(case, dtype, tolerance):
    check_predictions(build_ours(case)[0], case, dtype, tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("case", run_first([*CASES, *REDUCED], CASES[8], REDUCED[2]), ids=str)
def test_independent_couplings_predict_the_same(case):
    module, _ = build_ours(case, independent=True)
    check_predictions(module, case, torch.float64, 1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("case", REDUCED, ids=str)
def test_reduced_couplings_are_taken_over_into_all(case):
    check_predictions(build_ours(case)[0], case, torch.float64, 1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_weights_go_back_as_they_came(case):
    module, state = build_ours(case)
    for name, tensor in list_weights(module).items():
        assert torch.equal(tensor, state[name].view(tensor.shape)), name


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_weights_of_independent_couplings_go_back_to_the_same_products(case):
    again, (module, state) = make_network(*case), build_ours(case, independent=True)
    weights = {name: x.view(state[name].shape) for name, x in list_weights(module).items()}
    load_from_peer(again, state | weights, list_peer_options(case))
    check_predictions(again, case, torch.float64, 1e-10)


def refuse(module, state, options, match):
    """Check that the network is refused, and ours stays as it was."""
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    with pytest.raises(ValueError, match=match):
        load_from_peer(module, state, options)
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor, before[name]), name


STATES = {
    "agnesi": "distance_transform.*Agnesi",
    "soft": "distance_transform.*Soft",
    "zbl": "pair_repulsion_fn.*ZBL",
    "density": "density",
    "first_density": "density",
    "gaussian": "gaussian_weights.*radial functions",
    "chebyshev": r"bessel_fn\.n.*radial functions",
    "readout_bias": "linear_mid.*biases",
    "bessel": "bessel_weights: the network has",
    "envelope": r"cutoff_fn\.p: the network has \[6\], ours \[5\]",
}


@pytest.mark.parametrize("name", STATES)
def test_a_network_whose_state_shows_another_is_refused_by_name(name):
    without = set(record()[f"{name}/without"].tolist())
    kept = {k: x for k, x in state_of(name_of(BASE)).items() if f"/state/{k}" not in without}
    refuse(make_network(*BASE), kept | state_of(name), list_peer_options(BASE), STATES[name])


def lack(part):
    return lambda state: {key: x for key, x in state.items() if part not in key}


def have(name, tensor):
    return lambda state: state | {name: tensor}


def roll_couplings(state):
    key = "products.0.symmetric_contractions.contractions.0.U_matrix_1"
    return state | {key: torch.roll(state[key], 1, 0)}


@pytest.mark.parametrize(("change", "match"), [
    (have("r_max", torch.tensor(5.0)), "r_max"),
    (have("atomic_numbers", torch.tensor([8, 13, 30])), "atomic_numbers"),
    (have("atomic_energies_fn.atomic_energies", torch.zeros(2, 3)), "atomic_energies_fn"),
    (have("node_embedding.linear.bias", torch.ones(4)), "node_embedding.linear.bias"),
    (have("interactions.0.attention.weight", torch.ones(4)), "interactions.0.attention.weight"),
    *((lack(name), name) for name in ("r_max", "U_matrix_1", "weights_max", "atomic_energies")),
    (roll_couplings, "span other products"),
])  # fmt: skip
def test_a_state_of_another_network_is_refused(change, match):
    state = change(state_of(name_of(BASE)))
    refuse(make_network(*BASE), state, list_peer_options(BASE), match)


@pytest.mark.parametrize(("change", "match"), [
    ({"average_neighbours": 14.0}, "average_neighbours: the network has 14.0, ours 17.0"),
    ({"gate": "tanh"}, "gate: the network has tanh, ours silu"),
    ({"gate": "none"}, "gate: the network has none"),
    ({"apply_cutoff": False}, "apply_cutoff: the network has False"),
    ({"interactions": (PLAIN, RESIDUAL)}, "interactions"),
])  # fmt: skip
def test_what_the_state_does_not_show_is_asked(change, match):
    options = replace(list_peer_options(BASE), **change)
    refuse(make_network(*BASE), state_of(name_of(BASE)), options, match)


def test_other_options_are_refused():
    options = MACEOptions(channels=8, radial_functions=5)
    module = MACE(options, Facts(("O", "Al", "Cu"), 17.0), GRAPH)
    refuse(module, state_of(name_of(BASE)), list_peer_options(BASE), "has other options")
