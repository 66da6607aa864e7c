"""The package chgnet, for `_worker.py`."""

from typing import Any

import torch
from _chgnet_subjects import Arrays, TrainedNetwork, split_structures
from chgnet.model import CHGNet
from pymatgen.io.ase import AseAtomsAdaptor
from torch import Tensor


class Network(TrainedNetwork):
    """The package; starts from finished neighbour graphs."""

    def __init__(self, arrays: Arrays, options: dict[str, Any]) -> None:
        device = options["device"]
        super().__init__(CHGNet.load(use_device=device, verbose=False), arrays, device)
        convert = self.model.graph_converter
        self.graphs = [
            convert(AseAtomsAdaptor.get_structure(atoms)).to(device)
            for atoms in split_structures(arrays)
        ]

    def predict(self) -> dict[str, Tensor]:
        """Put the batch together and predict."""
        outputs = self.model(self.graphs, task="efsm")
        return {
            "energy": outputs["e"],
            "forces": torch.cat(outputs["f"]),
            "stress": torch.stack(list(outputs["s"])),
            "magmoms": torch.cat(outputs["m"]),
        }

    def infer(self) -> dict[str, Tensor]:
        """Predict; the package records the graph for training whatever it is asked for."""
        return self.predict()
