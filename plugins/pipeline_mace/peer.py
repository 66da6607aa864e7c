"""What a network of mace-torch must be for its weights to mean the same here.

Its state shows most of it. What the state cannot show is asked: `PeerOptions`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from ase.data import atomic_numbers, covalent_radii
from torch import Tensor

from pipeline_mace.model import MACE

INTERACTIONS: Final = {
    ("plain", "average"): "RealAgnosticInteractionBlock",
    ("residual", "average"): "RealAgnosticResidualInteractionBlock",
    ("plain", "density"): "RealAgnosticDensityInteractionBlock",
    ("residual", "density"): "RealAgnosticDensityResidualInteractionBlock",
}
"""Our kinds of interactions with what they divide by, and the classes that do the same."""

_UNKNOWN: Final = {
    r"distance_transform\.alpha$": "the Soft transform of distances",
    r"radial_embedding\.distance_transform\.": "the Agnesi transform of distances",
    r"pair_repulsion_fn\.": "the ZBL repulsion of pairs",
    r"\.density_fn\.|\.(alpha|beta)$": "messages that are normalised by a density",
    r"bessel_fn\.(gaussian_weights|n)$": "radial functions other than Bessel's",
    r"readouts\.\d+\.linear_mid\.": "readouts with biases",
    r"joint_embedding\.|embedding_readout\.": "embeddings of further quantities",
}
"""Patterns of keys of a state, and what a network that has them does that ours does not."""

_CONSTANTS: Final = re.compile(
    r"(\.output_mask|\.weights_(\d+|max)_zeroed|\.U_matrix_\d+|\._w3j_\d+_\d+_\d+"
    r"|\.bessel_fn\.prefactor)$"
)
"""Keys of what follows from the options of a network."""


@dataclass(frozen=True)
class PeerOptions:
    """What the state of a network of mace-torch does not show.

    Attributes:
        average_neighbours: What sums over neighbours are divided by (`avg_num_neighbors`).
        gate: Name of the activation in the last readout, such as "silu"; "none" for none.
        apply_cutoff: Whether radial functions are multiplied with the envelope, rather than
            messages.
        heads: Names of its energies.
        interactions: Names of the classes of the interactions, from the first layer.
    """

    average_neighbours: float
    gate: str
    apply_cutoff: bool
    interactions: tuple[str, ...]
    heads: tuple[str, ...]


def read_peer_options(peer: Any) -> PeerOptions:
    """Read from a network of mace-torch what its state does not show.

    Args:
        peer: The module itself, or what `pickles.read_module` gives for its file.

    Raises:
        ValueError: It is of another class, or its layers differ.
    """
    if type(peer).__name__ != "ScaleShiftMACE":
        raise ValueError(f"the network is a {type(peer).__name__}; take a ScaleShiftMACE")
    averages = {float(layer.avg_num_neighbors) for layer in peer.interactions}
    if len(averages) > 1:
        raise ValueError(f"avg_num_neighbors: layers have {sorted(averages)}, ours all have one")
    readout = peer.readouts[-1]
    gates = getattr(getattr(readout, "non_linearity", None), "acts", [None])
    function = getattr(gates[0], "f", gates[0])
    return PeerOptions(
        average_neighbours=averages.pop(),
        gate=getattr(function, "__name__", type(function).__name__) if function else "none",
        apply_cutoff=bool(getattr(peer, "apply_cutoff", True)),
        interactions=tuple(type(layer).__name__ for layer in peer.interactions),
        heads=tuple(getattr(peer, "heads", None) or ("default",)),
    )


def check_peer(
    module: MACE, state: Mapping[str, Tensor], options: PeerOptions, names: set[str]
) -> None:
    """Check that a network of mace-torch computes what ours does.

    Args:
        module: Ours.
        state: Its `state_dict()`.
        options: What the state does not show.
        names: Tensors of the state that hold weights.

    Raises:
        ValueError: It does something else; the message names what.
    """
    constants = _list_constants(module)
    for pattern, meaning in _UNKNOWN.items():
        others = state.keys() - constants.keys() - names
        key = next((key for key in sorted(others) if re.search(pattern, key)), None)
        if key is not None:
            raise ValueError(f"{key}: the network has {meaning}; ours has not")
    for name, theirs, ours in _compare_options(module, options):
        if theirs != ours:
            raise ValueError(f"{name}: the network has {theirs}, ours {ours}; make ours alike")
    for name, values in constants.items():
        _check_constant(name, values, state)
    for key, tensor in state.items():
        known = key in constants or key in names or _CONSTANTS.search(key)
        if tensor.numel() and not known:
            raise ValueError(f"{key}: not known here; it may change what the network computes")


def _compare_options(module: MACE, options: PeerOptions) -> Iterator[tuple[str, object, object]]:
    """Yield name, their value and ours of what the state does not show."""
    average, own = module.facts.average_neighbours, module.options
    same = np.isclose(options.average_neighbours, average, rtol=1e-6)
    yield "average_neighbours", average if same else options.average_neighbours, average
    yield "gate", options.gate, own.gate
    yield "apply_cutoff", options.apply_cutoff, True
    kinds = [own.first_interaction] + [own.interaction] * (own.layers - 1)
    classes = tuple(INTERACTIONS[kind, own.normalization] for kind in kinds)
    yield "interactions", options.interactions, classes
    yield "heads", options.heads, tuple(own.heads)


def _list_constants(module: MACE) -> dict[str, list[float]]:
    """Return what tensors of the state that are no weights must be."""
    options = module.options
    cutoff = module.graph.cutoff
    bessel = [n * np.pi / cutoff for n in range(1, options.radial_functions + 1)]
    radii = covalent_radii.tolist()
    of_transform = {"radial_embedding.distance_transform.covalent_radii": radii}
    of_repulsion = {
        "pair_repulsion_fn.covalent_radii": radii,
        "pair_repulsion_fn.p": [options.envelope_power],
    }
    return {
        "atomic_numbers": [atomic_numbers[symbol] for symbol in module.facts.elements],
        "r_max": [cutoff],
        "num_interactions": [options.layers],
        "radial_embedding.bessel_fn.bessel_weights": bessel,
        "radial_embedding.bessel_fn.r_max": [cutoff],
        "radial_embedding.cutoff_fn.p": [options.envelope_power],
        "radial_embedding.cutoff_fn.r_max": [cutoff],
        **(of_transform if module.transform is not None else {}),
        **(of_repulsion if module.repulsion is not None else {}),
    }


def _check_constant(name: str, ours: list[float], state: Mapping[str, Tensor]) -> None:
    if name not in state:
        raise ValueError(f"{name}: not in the state; take that of a ScaleShiftMACE, all of it")
    theirs = state[name].reshape(-1).tolist()
    if len(theirs) != len(ours) or not np.allclose(theirs, ours, rtol=1e-6):
        raise ValueError(f"{name}: the network has {theirs}, ours {ours}; make ours alike")
