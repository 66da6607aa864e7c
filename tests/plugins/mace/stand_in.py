"""Files in the layout of mace-torch, without it: classes of the same names stand in for its own.

    python stand_in.py write FOLDER           # NAME.model of each network of foundations.npz.xz
    python stand_in.py read FILE              # what a file makes a ScaleShiftMACE of, as JSON
    python stand_in.py change FOLDER CHANGES  # NUMBER.model of `mp` with each change, as JSON

The pickles name the same modules and classes, and their objects hold the same, but for what e3nn
compiles. Of the first network there is also one for other elements: alloys.model.
"""

from __future__ import annotations

import io
import json
import lzma
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import nn

RECORD = Path(__file__).with_name("foundations.npz.xz")
ALLOYS = [13, 29, 47]  # Al, Cu, Ag
PLAIN, RESIDUAL = "RealAgnosticInteractionBlock", "RealAgnosticResidualInteractionBlock"
DENSE = "RealAgnosticDensityInteractionBlock"
DENSE_RESIDUAL = "RealAgnosticDensityResidualInteractionBlock"
INTERACTIONS = {
    "mp": (RESIDUAL, RESIDUAL),
    "off": (PLAIN, RESIDUAL),
    "density": (DENSE, DENSE_RESIDUAL),
    "agnesi": (RESIDUAL, RESIDUAL),
    "two_heads": (DENSE, DENSE_RESIDUAL),
}
HEADS = {"two_heads": ["pt_head", "Default"]}


def make_class(module: str, name: str, base: type = nn.Module, **members: Any) -> type:
    """Return a class that a pickle finds under a name of another package."""
    parts = module.split(".")
    for count in range(1, len(parts) + 1):
        sys.modules.setdefault(".".join(parts[:count]), ModuleType(".".join(parts[:count])))
    made = getattr(sys.modules[module], name, None)
    if made is None:
        made = type(name, (base,), {"__module__": module, **members})
        setattr(sys.modules[module], name, made)
    return made


def build(name: str, state: dict[str, torch.Tensor]) -> nn.Module:
    """Return modules whose names and tensors are those of a network."""
    root = make_class("mace.modules.models", "ScaleShiftMACE")()
    for key, tensor in state.items():
        *path, last = key.split(".")
        place = root
        for depth, part in enumerate(path):
            if part not in place._modules:
                place.add_module(part, _choose_class(name, path[: depth + 1])())
            place = place._modules[part]
        if last == "weight":
            place.register_parameter(last, nn.Parameter(tensor))
        else:
            place.register_buffer(last, tensor)
    root.heads = HEADS.get(name, ["Default"])
    for layer in root.interactions._modules.values():
        layer.avg_num_neighbors = 17.0
    gate = make_class("e3nn.math._normalize_activation", "normalize2mom")()
    gate.f = torch.nn.functional.silu
    activation = make_class("e3nn.nn._activation", "Activation")()
    activation.acts = nn.ModuleList([gate])
    list(root.readouts._modules.values())[-1].non_linearity = activation
    return root


def _choose_class(name: str, path: list[str]) -> type:
    if len(path) == 2 and path[0] == "interactions":
        return make_class("mace.modules.blocks", INTERACTIONS[name][min(int(path[1]), 1)])
    if path[-1] in ("interactions", "products", "readouts"):
        return nn.ModuleList
    return make_class("mace.modules.blocks", "Part")


def read_state(name: str) -> dict[str, torch.Tensor]:
    """Return the state of a network of mace-torch."""
    with np.load(io.BytesIO(lzma.decompress(RECORD.read_bytes()))) as file:
        prefix = f"{name}/state/"
        keys = [key for key in file if key.startswith(prefix)]
        return {key.removeprefix(prefix): torch.from_numpy(file[key]) for key in keys}


def read(path: str) -> dict[str, Any]:
    """Return the arguments and the shapes of the weights of the network of a file."""
    found: dict[str, Any] = {}

    def keep(self: nn.Module, **arguments: Any) -> None:
        nn.Module.__init__(self)
        found["arguments"] = {key: _show(value) for key, value in arguments.items()}

    def load(self: nn.Module, state: dict[str, torch.Tensor], strict: bool) -> None:
        found["weights"] = {key: [str(x.dtype), *x.shape] for key, x in state.items()}

    members = {"__init__": keep, "load_state_dict": load}
    network = make_class("mace.modules.models", "ScaleShiftMACE", **members)
    for block in (PLAIN, RESIDUAL, DENSE, DENSE_RESIDUAL):
        make_class("mace.modules.blocks", block)
    make_class("e3nn.o3", "Irreps", str)
    assert type(torch.load(path, weights_only=False)) is network
    return found


def _show(value: Any) -> Any:
    if isinstance(value, type) or callable(value):
        return value.__name__
    return value.tolist() if isinstance(value, np.ndarray) else value


def build_changed(change: dict[str, Any]) -> nn.Module:
    """Return the network `mp` with one thing that is not as it should be."""
    state = read_state("mp")
    if "without" in change:
        state = {key: x for key, x in state.items() if change["without"] not in key}
    for what, tensor in (("with", torch.ones(3)), ("cut", torch.ones(1))):
        if what in change:
            state[change[what]] = tensor
    INTERACTIONS["mp"] = (RESIDUAL, change.get("interaction", RESIDUAL))
    network: Any = build("mp", state)
    if "average" in change:
        list(network.interactions)[1].avg_num_neighbors = change["average"]
    if "gate" in change:
        list(network.readouts)[-1].non_linearity.acts[0].f = torch.nn.functional.relu
    if "kind" in change:
        network.__class__ = make_class("mace.modules.models", change["kind"])
    return network


def main(mode: str, place: str, changes: str = "[]") -> None:
    """Do what the head of the file says."""
    if mode == "change":
        for number, change in enumerate(json.loads(changes)):
            torch.save(build_changed(change), Path(place, f"{number}.model"))
        return
    if mode == "read":
        print(json.dumps(read(place)))
        return
    for name in INTERACTIONS:
        torch.save(build(name, read_state(name)), Path(place, f"{name}.model"))
    state = read_state("mp") | {"atomic_numbers": torch.tensor(ALLOYS)}
    torch.save(build("mp", state), Path(place, "alloys.model"))


if __name__ == "__main__":
    main(*sys.argv[1:])
