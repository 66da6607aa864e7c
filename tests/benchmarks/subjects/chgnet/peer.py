"""The package chgnet, for `harness/worker.py`."""

from typing import Any

import torch
from ase import Atoms
from chgnet.model import CHGNet
from chgnet.model.dynamics import CHGNetCalculator
from pymatgen.io.ase import AseAtomsAdaptor
from torch import Tensor

from harness import crystals, dynamics
from harness.structures import Arrays, read_structures
from subjects.chgnet.training import GPA, TrainedNetwork


class Network(TrainedNetwork):
    """The package; starts from finished neighbour graphs, and records the graph for training
    whatever it is asked for."""

    def __init__(self, arrays: Arrays, options: dict[str, Any]) -> None:
        device = options["device"]
        super().__init__(CHGNet.load(use_device=device, verbose=False), arrays, device)
        convert = self.model.graph_converter
        self.graphs = [
            convert(AseAtomsAdaptor.get_structure(atoms)).to(device)
            for atoms in read_structures(arrays)
        ]

    def predict(self) -> dict[str, Tensor]:
        outputs = self.model(self.graphs, task="efsm")
        return {
            "energy": outputs["e"],
            "forces": torch.cat(outputs["f"]),
            "stress": torch.stack(list(outputs["s"])),
            "magmoms": torch.cat(outputs["m"]),
        }

    def infer(self) -> dict[str, Tensor]:
        return self.predict()


class Dynamics(dynamics.Simulation):
    """A cell with the calculator of the package."""

    def __init__(self, arrays: Arrays, options: dict[str, Any]) -> None:
        model = CHGNet.load(use_device="cpu", verbose=False)
        super().__init__(arrays, CHGNetCalculator(model, use_device="cpu"), options)


class Crystals(crystals.Crystals):
    """`predict_structure` with the task that is asked for, and no moments."""

    def __init__(self, arrays: Arrays, options: dict[str, Any]) -> None:
        super().__init__(arrays)
        assert options["dtype"] == "float32"  # the only type that it computes in
        self.model = CHGNet.load(use_device="cpu", verbose=False)

    def predict(self, atoms: Atoms) -> dict[str, Any]:
        structure = AseAtomsAdaptor.get_structure(atoms)
        result = self.model.predict_structure(structure, task="efs")
        return {"energy": result["e"], "forces": result["f"], "stress": result["s"] / GPA}
