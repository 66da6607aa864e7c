"""CHGNet of the plugin, for `_worker.py`."""

from collections.abc import Sequence
from typing import Any

import ase
import numpy as np
import torch
from _chgnet_subjects import GPA, Arrays, TrainedNetwork, split_structures
from torch import Tensor

from pipeline_chgnet.model import CHGNet
from pipeline_chgnet.options import CHGNetOptions
from pipeline_core.batch import collate, move_to_device
from pipeline_core.config.sections import GraphOptions
from pipeline_core.graphs import build_graph
from pipeline_core.memory import keep_freed_memory


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
        self.samples = build_samples(split_structures(arrays))

    def predict(self) -> dict[str, Tensor]:
        """Put the batch together and predict."""
        batch = move_to_device(collate(self.samples, torch.float32), torch.device(self.device))
        outputs = self.model(batch)
        energy = outputs["energy"] / batch["atom_offsets"].diff()
        outputs |= {"energy": energy, "stress": GPA * outputs["stress"]}
        return {name: value.float() for name, value in outputs.items()}

    def infer(self) -> dict[str, Tensor]:
        """Predict without recording a graph for training."""
        with torch.no_grad():
            return self.predict()


def build_model(heads: bool) -> CHGNet:
    """Return the network with published weights, or with heads and random ones."""
    if not heads:
        return CHGNet.published()
    torch.manual_seed(0)
    return CHGNet(CHGNetOptions(heads="pair", updates="parallel"))


def build_samples(structures: Sequence[ase.Atoms]) -> list[dict[str, np.ndarray]]:
    """Return the structures with their graphs."""
    samples = []
    for atoms in structures:
        sample = {
            "atomic_numbers": atoms.numbers,
            "positions": atoms.positions,
            "cell": np.array(atoms.cell),
            "pbc": np.array(atoms.pbc),
        }
        graph = build_graph(sample, GraphOptions(cutoff=6.0, angle_cutoff=3.0))
        samples.append(sample | graph)
    return samples
