"""Checks that a network of mace-torch computes the same as ours with the same weights.

Most settings follow from its state; `PeerOptions` holds those that do not.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from ase.data import atomic_numbers, covalent_radii
from torch import Tensor

from pipeline_mace.model.network import MACE

INTERACTIONS: Final = {
    ("plain", "average"): "RealAgnosticInteractionBlock",
    ("residual", "average"): "RealAgnosticResidualInteractionBlock",
    ("plain", "density"): "RealAgnosticDensityInteractionBlock",
    ("residual", "density"): "RealAgnosticDensityResidualInteractionBlock",
}
"""Our kinds of interactions with their divisors, and the equivalent classes of mace-torch."""

_UNKNOWN: Final = {
    r"distance_transform\.alpha$": "the Soft transform of distances",
    r"radial_embedding\.distance_transform\.": "the Agnesi transform of distances",
    r"pair_repulsion_fn\.": "the ZBL repulsion of pairs",
    r"\.density_fn\.|\.(alpha|beta)$": "messages that are normalised by a density",
    r"bessel_fn\.(gaussian_weights|n)$": "radial functions other than Bessel's",
    r"readouts\.\d+\.linear_mid\.": "readouts with biases",
    r"joint_embedding\.|embedding_readout\.": "embeddings of further quantities",
}
"""Patterns of keys of a state, and the feature, absent in our networks, that each reveals."""

_CONSTANTS: Final = re.compile(
    r"(\.output_mask|\.weights_(\d+|max)_zeroed|\.U_matrix_\d+|\._w3j_\d+_\d+_\d+"
    r"|\.bessel_fn\.prefactor)$"
)
"""Keys of tensors that follow from the options of a network."""


@dataclass(frozen=True)
class PeerOptions:
    """Settings of a network of mace-torch that its state lacks.

    Attributes:
        average_neighbours: Divisor of sums over neighbours (`avg_num_neighbors`).
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
    """Read the settings of a network of mace-torch that its state lacks.

    Args:
        peer: The module itself, or the result of `pickles.read_module` for its file.

    Raises:
        ValueError: The network is of another class, or its layers differ.
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
    """Check that a network of mace-torch computes the same function as ours.

    Args:
        module: Our network.
        state: `state_dict()` of the network of mace-torch.
        options: Settings that the state lacks.
        names: Names of tensors of the state that hold weights.

    Raises:
        ValueError: It computes something else; the message names the difference.
    """
    constants = _list_constants(module)
    for pattern, meaning in _UNKNOWN.items():
        others = state.keys() - constants.keys() - names
        key = next((key for key in sorted(others) if re.search(pattern, key)), None)
        if key is not None:
            raise ValueError(f"{key}: the network has {meaning}; ours does not")
    for name, theirs, ours in _compare_options(module, options):
        if theirs != ours:
            raise ValueError(f"{name}: the network has {theirs}, ours {ours}; make them equal")
    for name, values in constants.items():
        _check_constant(name, values, state)
    for key, tensor in state.items():
        is_checked = key in constants or key in names or _CONSTANTS.search(key)
        if tensor.numel() and not is_checked:
            raise ValueError(f"{key}: unknown here; it may change what the network computes")


def _compare_options(module: MACE, options: PeerOptions) -> Iterator[tuple[str, object, object]]:
    """Yield name, their value and our value of each setting that the state lacks."""
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
    """Return the required values of tensors of the state that are not weights."""
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
        raise ValueError(f"{name}: not in the state; pass the whole state of a ScaleShiftMACE")
    theirs = state[name].reshape(-1).tolist()
    if len(theirs) != len(ours) or not np.allclose(theirs, ours, rtol=1e-6):
        raise ValueError(f"{name}: the network has {theirs}, ours {ours}; make them equal")
