"""Heads of a network of mace-torch: some of them, in another order."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from torch import Tensor

from pipeline_mace.peer import PeerOptions

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
