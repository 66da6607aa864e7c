"""Heads: further ones for a trained network, and some of those of a network of mace-torch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import torch
from torch import Tensor

from pipeline_mace.peer import PeerOptions

_OWN_READOUT: Final = re.compile(r"(readouts\.\d+\.weights)\.(\d)")
_LINEAR: Final = re.compile(r"readouts\.\d+\.linear(_1)?\.weight")
_LAST: Final = re.compile(r"readouts\.\d+\.linear_2\.weight")
_ROWS: Final = ("atomic_energies_fn.atomic_energies", "scale_shift.scale", "scale_shift.shift")


def choose_heads(
    state: Mapping[str, Tensor], options: PeerOptions, names: Sequence[str]
) -> tuple[dict[str, Tensor], PeerOptions]:
    """Return a network of mace-torch with some of its heads.

    Args:
        state: Of the network.
        options: What the state does not show.
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
    """Return the weights of one of our networks with further heads, which begin as its first one.

    Their energies of free atoms are zero, so that those of the dataset take their place.

    Args:
        weights: Of the network.
        before: Its heads. A single one becomes the first, whatever it is called.
        names: All heads, those that it has first.

    Raises:
        ValueError: A head is missing, or has another place.
    """
    n_before, n_heads = len(before), len(names)
    if n_before > 1 and list(names[:n_before]) != list(before):
        raise ValueError(
            f"the model has the heads {', '.join(before)}, and the experiment {', '.join(names)}; "
            "let model.heads begin with those of the model, in their order"
        )
    if n_heads == n_before:
        return weights
    chosen = [*range(n_before), *[0] * (n_heads - n_before)]
    result = dict(weights)
    for name in ("scale", "shift"):
        result[name] = weights[name].reshape(-1)[chosen]
    first = weights["atom_energies"]
    rows = weights.get("further_energies", first.new_zeros(0, len(first)))
    result["further_energies"] = torch.cat([rows, rows.new_zeros(n_heads - n_before, len(first))])
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
