"""What is measured of CHGNet on both sides alike: a training step and an inference.

The loss is that of the published training: Huber, delta 0.1, of energy an atom, forces, stress and
magnetic moments with weights 1, 1, 0.1, 0.1. The data have no moments, which are taken as zero.
"""

from abc import ABC, abstractmethod

import ase
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import huber_loss

Arrays = dict[str, np.ndarray]
GPA = 160.21766208  # in eV/Å³, the unit of the peer's stress
WEIGHTS = {"energy": 1.0, "forces": 1.0, "stress": 0.1, "magmoms": 0.1}


class TrainedNetwork(ABC):
    """A network with published weights, and a batch with its labels.

    Args:
        model: The network.
        arrays: Of the structures, one after the other.
        device: Where it computes.

    Attributes:
        fused: Whether the side's own training fuses the steps of Adam; None if it leaves it to
            torch.
    """

    fused: bool | None = None

    def __init__(self, model: nn.Module, arrays: Arrays, device: str) -> None:
        self.model, self.device = model, device
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
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-6, fused=self.fused)
        self.calls = {"infer": self.infer, "step": self.step}

    @abstractmethod
    def predict(self) -> dict[str, Tensor]:
        """Put the batch together; return energy an atom, forces, stress in GPa, moments."""

    @abstractmethod
    def infer(self) -> dict[str, Tensor]:
        """Predict as far as the side can without a graph for training."""

    def step(self) -> None:
        """Batch, predictions with derivatives, loss, backward, Adam."""
        self.model.train()
        outputs = self.predict()
        losses = (
            weight * huber_loss(outputs[name], self.labels[name], delta=0.1)
            for name, weight in WEIGHTS.items()
        )
        self.optimizer.zero_grad()
        torch.autograd.backward(sum(losses), inputs=[*self.model.parameters()])
        self.optimizer.step()

    def result(self) -> Arrays:
        """Return what is predicted."""
        return {name: value.detach().cpu().numpy() for name, value in self.infer().items()}


def split_structures(arrays: Arrays) -> list[ase.Atoms]:
    """Return the structures of a batch."""
    ends = np.cumsum(arrays["n_atoms"])[:-1]
    parts = (np.split(arrays[name], ends) for name in ("numbers", "positions"))
    rows = zip(*parts, arrays["cells"], strict=True)
    return [ase.Atoms(z, r, cell=cell, pbc=True) for z, r, cell in rows]
