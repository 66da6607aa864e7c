"""A training step, as all sides of a benchmark do it."""

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn


class TrainedNetwork(ABC):
    """A network and its optimizer.

    Args:
        model: The network.
        device: Where it computes.

    Attributes:
        fused: Whether the side's own training fuses the steps of Adam; None if it leaves it to
            torch.
    """

    fused: bool | None = None

    def __init__(self, model: nn.Module, device: str = "cpu") -> None:
        self.model, self.device = model.to(device), device
        self.trained = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.Adam(self.trained, lr=1e-6, fused=self.fused)
        self.calls = {"infer": self.infer, "step": self.step}

    @abstractmethod
    def predict(self) -> Any:
        """Put the batch together and predict."""

    @abstractmethod
    def loss(self) -> Tensor:
        """Predict and return the loss."""

    def infer(self) -> Any:
        """Predict without recording a graph for training, as far as the side can."""
        with torch.no_grad():
            return self.predict()

    def differentiate(self, loss: Tensor) -> None:
        """Differentiate the loss by what is trained, and nothing else."""
        torch.autograd.backward(loss, inputs=self.trained)

    def step(self) -> None:
        """Batch, predictions, loss, backward, Adam."""
        self.optimizer.zero_grad()
        self.differentiate(self.loss())
        self.optimizer.step()
