"""Our network with the weights of mace-torch 0.3.16 against its predictions.

Oracle: `peer.npz`, which `make_peer.py` has written with mace-torch: random weights, all
combinations of degree and correlation, two strained cells of four atoms.
"""

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from ase import Atoms

from pipeline_core.config.sections import GraphOptions
from pipeline_core.testing.potentials import batch_of
from pipeline_mace.model import MACE, Facts
from pipeline_mace.options import MACEOptions
from pipeline_mace.weights import from_peer, to_peer

PEER = Path(__file__).with_name("peer.npz")
PLAIN = "RealAgnosticInteractionBlock"
CASES = [
    (max_l, n, "RealAgnosticResidualInteractionBlock") for max_l in range(3) for n in (1, 2, 3)
]
CASES.append((1, 2, PLAIN))


@cache
def record():
    with np.load(PEER) as file:
        return dict(file)


def ours(max_l, correlation, first):
    """The network with the peer's weights, in double precision."""
    options = MACEOptions(
        channels=4,
        max_l=max_l,
        lmax=3 if max_l else 2,
        correlation=correlation,
        first_interaction="plain" if first == PLAIN else "residual",
        radial_functions=5,
        radial_features=[8, 8],
        readout_features=6,
        cutoff=4.0,
    )
    module = MACE(options, Facts(("O", "Al", "Cu"), 17.0)).double()
    prefix = "-".join(map(str, (max_l, correlation, first))) + "/state/"
    state = {
        key.removeprefix(prefix): torch.from_numpy(value)
        for key, value in record().items()
        if key.startswith(prefix)
    }
    from_peer(module, state)
    for z, energy in {8: -1.0, 13: -2.0, 29: -3.0}.items():
        module.atom_energies[z] = energy
    return module.eval(), state


def batch(dtype):
    structures = [
        Atoms(
            record()[f"{i}/numbers"],
            record()[f"{i}/positions"],
            cell=record()[f"{i}/cell"],
            pbc=True,
        )
        for i in range(2)
    ]
    return batch_of(structures, GraphOptions(cutoff=4.0), dtype)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_energy_forces_and_stress(case, dtype, tolerance):
    module, _ = ours(*case)
    with torch.no_grad():
        found = module.to(dtype)(batch(dtype))
    for name in ("energy", "forces", "stress"):
        expected = torch.from_numpy(record()[f"{'-'.join(map(str, case))}/{name}"])
        scale = max(1.0, float(expected.abs().max()))
        error = (found[name].double() - expected).abs().max() / scale
        assert error < tolerance, (name, float(error))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_weights_go_back_as_they_came(case):
    module, state = ours(*case)
    returned = to_peer(module)
    assert set(returned) <= set(state)
    for name, tensor in returned.items():
        assert torch.equal(tensor, state[name]), name
    left = set(state) - set(returned)
    assert not left


def test_energies_of_free_atoms_come_along():
    module, state = ours(1, 2, PLAIN)
    module.atom_energies.zero_()
    energies = torch.tensor([[-1.5, -2.5, -3.5]])
    more = {"atomic_energies_fn.atomic_energies": energies, "r_max": torch.tensor(4.0)}
    more["atomic_numbers"] = torch.tensor([8, 13, 29])
    from_peer(module, state | more)
    assert module.atom_energies[[8, 13, 29]].tolist() == [-1.5, -2.5, -3.5]


@pytest.mark.parametrize(("name", "value"), [
    ("r_max", torch.tensor(5.0)),
    ("atomic_numbers", torch.tensor([8, 13, 30])),
    ("atomic_energies_fn.atomic_energies", torch.zeros(2, 3)),
])  # fmt: skip
def test_another_network_is_refused(name, value):
    module, state = ours(1, 2, PLAIN)
    with pytest.raises(ValueError, match=name):
        from_peer(module, state | {name: value})


def test_other_options_are_refused():
    _, state = ours(1, 2, PLAIN)
    module = MACE(MACEOptions(channels=4, radial_features=[8, 8]), Facts(("O", "Al", "Cu"), 17.0))
    with pytest.raises(ValueError, match="has other options"):
        from_peer(module, state)
