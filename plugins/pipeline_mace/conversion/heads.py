"""Energy heads: adding heads to a trained network, choosing heads of a network of mace-torch."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from torch import Tensor

from pipeline_atoms.potential.potential import extend_heads
from pipeline_mace.conversion.peer import PeerOptions

_OWN_READOUT: Final = re.compile(r"(readouts\.\d+\.weights)\.(\d)")
_LINEAR: Final = re.compile(r"readouts\.\d+\.linear(_1)?\.weight")
_LAST: Final = re.compile(r"readouts\.\d+\.linear_2\.weight")
_ROWS: Final = ("atomic_energies_fn.atomic_energies", "scale_shift.scale", "scale_shift.shift")


def choose_heads(
    state: Mapping[str, Tensor], options: PeerOptions, names: Sequence[str]
) -> tuple[dict[str, Tensor], PeerOptions]:
    """Return a network of mace-torch with some of its heads.

    Args:
        state: State of the network.
        options: Settings that the state lacks.
        names: Heads to keep, in their new order.
    """
    present = options.heads
    chosen = [present.index(name) for name in names]
    if list(names) == list(present):
        return dict(state), options
    channels = state["node_embedding.linear.weight"].numel() // len(state["atomic_numbers"])
    kept = dict(state)
    for name, tensor in state.items():
        if name in _ROWS:
            kept[name] = tensor.reshape(len(present), -1)[chosen].reshape(-1, *tensor.shape[1:])
        elif _LINEAR.fullmatch(name):
            parts = tensor.view(channels, len(present), -1)
            kept[name] = parts[:, chosen].reshape(-1)
        elif _LAST.fullmatch(name):
            parts = tensor.view(len(present), -1, len(present))[chosen][:, :, chosen]
            # e3nn divides by the root of the width of the hidden layers of all heads.
            kept[name] = parts.reshape(-1) * (len(chosen) / len(present)) ** 0.5
    return kept, replace(options, heads=tuple(names))


def add_heads(
    weights: dict[str, Tensor], before: Sequence[str], names: Sequence[str]
) -> dict[str, Tensor]:
    """Return the weights of a network of ours with further heads, copies of its first one.

    Arguments and errors are those of `extend_heads`.
    """
    result, chosen = extend_heads(weights, before, names)
    n_before, n_heads = len(before), len(names)
    if n_heads == n_before:
        return result
    for name in ("scale", "shift"):
        result[name] = weights[name].reshape(-1)[chosen]
    for name, tensor in weights.items():
        found = _OWN_READOUT.fullmatch(name)
        if found and found[2] == "1":
            parts = tensor.view(n_before, -1, n_before)[chosen][:, :, chosen]
            # A readout divides by the root of the width of the hidden layers of all heads.
            result[name] = parts.reshape(-1, n_heads) * (n_heads / n_before) ** 0.5
        elif found and f"{found[1]}.1" in weights:
            parts = tensor.view(len(tensor), n_before, -1)[:, chosen]
            result[name] = parts.reshape(len(tensor), -1)
        elif found:
            result[name] = tensor[:, chosen]
    return result
