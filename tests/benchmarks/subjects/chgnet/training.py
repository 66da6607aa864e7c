"""A training step and an inference of CHGNet, on both sides alike.

The loss is that of the published training: Huber, delta 0.1, of energy an atom, forces, stress and
magnetic moments with weights 1, 1, 0.1, 0.1. The data have no moments, which are taken as zero.
"""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import huber_loss

from harness import training
from harness.structures import Arrays

GPA = 160.21766208  # in eV/Å³, the unit of the peer's stress
WEIGHTS = {"energy": 1.0, "forces": 1.0, "stress": 0.1, "magmoms": 0.1}


class TrainedNetwork(training.TrainedNetwork):
    """A network with published weights, and a batch with its labels.

    It predicts energy an atom, forces, stress in GPa and moments.

    Args:
        model: The network.
        arrays: Of the structures, one after the other.
        device: Where it computes.
    """

    def __init__(self, model: nn.Module, arrays: Arrays, device: str) -> None:
        super().__init__(model, device)
        labels = {
            "energy": arrays["energy"] / arrays["n_atoms"],
            "forces": arrays["forces"],
            "stress": GPA * arrays["stress"],
            "magmoms": np.zeros(len(arrays["numbers"])),
        }
        self.labels = {
            name: torch.tensor(label, dtype=torch.float32, device=device)
            for name, label in labels.items()
        }

    def loss(self) -> Tensor:
        self.model.train()
        outputs = self.predict()
        return sum(
            weight * huber_loss(outputs[name], self.labels[name], delta=0.1)
            for name, weight in WEIGHTS.items()
        )

    def result(self) -> Arrays:
        """Return what is predicted."""
        return {name: value.detach().cpu().numpy() for name, value in self.infer().items()}
