"""CHGNet of the plugin, for `harness/worker.py`."""

from typing import Any

import torch
from ase.data import chemical_symbols
from torch import Tensor

from harness import dynamics
from harness.crystals import CalculatedCrystals
from harness.graphs import build_samples
from harness.structures import Arrays, read_structures
from pipeline_atoms.calculators.calculator import PotentialCalculator
from pipeline_atoms.config.graph import GraphOptions
from pipeline_chgnet.model.network import CHGNet
from pipeline_chgnet.options import CHGNetGraphOptions, CHGNetOptions
from pipeline_core.batch import collate, move_to_device
from pipeline_core.system.memory import keep_freed_memory
from subjects.chgnet.training import GPA, TrainedNetwork

CUTOFFS = {"cutoff": 6.0, "angle_cutoff": 3.0}


class Network(TrainedNetwork):
    """The plugin; starts from finished neighbour graphs."""

    fused = True

    def __init__(self, arrays: Arrays, options: dict[str, Any]) -> None:
        if options["training"]:
            keep_freed_memory()  # as the command that trains does
        model, device = build_model(options["heads"]), options["device"]
        energies = model.atom_energies
        model.to(device).atom_energies = energies.to(device)
        super().__init__(model, arrays, device)
        self.samples = build_samples(read_structures(arrays), **CUTOFFS)

    def predict(self) -> dict[str, Tensor]:
        batch = move_to_device(collate(self.samples, torch.float32), torch.device(self.device))
        outputs = self.model(batch)
        energy = outputs["energy"] / batch["atom_offsets"].diff()
        outputs |= {"energy": energy, "stress": GPA * outputs["stress"]}
        return {name: value.float() for name, value in outputs.items()}


class Dynamics(dynamics.Simulation):
    """A cell with the calculator, with the option `compiled` of what `infer.compile` makes."""

    def __init__(self, arrays: Arrays, options: dict[str, Any]) -> None:
        model = build_model(options.get("heads", False))
        if options.get("compiled"):
            model = model.compile_inference()
        calculator = PotentialCalculator(model, GraphOptions(**CUTOFFS), chemical_symbols)
        super().__init__(arrays, calculator, options)


class Crystals(CalculatedCrystals):
    """The calculator, which searches all neighbours anew."""

    def __init__(self, arrays: Arrays, options: dict[str, Any]) -> None:
        dtype = getattr(torch, options["dtype"])
        model, graph = CHGNet.published(), GraphOptions(**CUTOFFS)
        super().__init__(arrays, PotentialCalculator(model, graph, chemical_symbols, dtype=dtype))


def build_model(heads: bool) -> CHGNet:
    """Return the network with published weights, or with heads and random ones."""
    if not heads:
        return CHGNet.published()
    torch.manual_seed(0)
    return CHGNet(CHGNetOptions(heads="pair", updates="parallel"), CHGNetGraphOptions())
