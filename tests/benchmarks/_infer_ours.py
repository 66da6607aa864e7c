"""Inference of the plugin of MACE, plain and compiled, for `_worker.py`."""

from typing import Any

import torch
from _infer_subjects import MovingAtoms
from _mace_ours import OURS, build_graphs, make_network
from _mace_subjects import Arrays
from torch import Tensor

from pipeline_core.batch import collate
from pipeline_core.potential import Potential


class Network(MovingAtoms):
    """The network, or with the option `compiled` what `infer.compile` makes of it."""

    def __init__(self, arrays: Arrays, options: dict[str, Any]) -> None:
        dtype = getattr(torch, options["dtype"])
        super().__init__(arrays, dtype)
        self.module = load_network(arrays, options).to(dtype).eval()
        (sample,) = build_graphs(arrays, options["model"]["cutoff"])
        self.batch = collate([sample], dtype)

    def predict(self, positions: Tensor) -> dict[str, Tensor]:
        with torch.no_grad():
            outputs: dict[str, Tensor] = self.module(self.batch | {"positions": positions})
        return outputs


def load_network(arrays: Arrays, options: dict[str, Any]) -> Potential:
    """Return our network with the weights of the arrays, compiled or not, in single precision."""
    module = make_network(options)
    module.predicts = ("energy", "forces", "stress")
    state = {n.removeprefix(OURS): torch.from_numpy(x) for n, x in arrays.items() if OURS in n}
    module.load_state_dict(state)
    module.requires_grad_(False)
    return module.compile_inference() if options["compiled"] else module
