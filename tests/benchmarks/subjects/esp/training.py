"""What is measured of all sides alike: a network that learns the Hamiltonian of a structure."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

Arrays = dict[str, np.ndarray]


class Trained(ABC):
    """A network that is called in inference and in training.

    Args:
        model: The network.

    Attributes:
        fused: Whether the side's own training fuses the steps of Adam; None if it leaves it to
            torch.
    """

    fused: bool | None = None

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-6, fused=self.fused)
        self.calls = {"step": self.step, "forward": self.forward}

    @abstractmethod
    def predict(self) -> Any:
        """Return all blocks."""

    @abstractmethod
    def loss(self) -> Tensor:
        """Return the loss of a prediction."""

    def forward(self) -> None:
        """Predict; nothing is differentiated."""
        with torch.no_grad():
            self.predict()

    def step(self) -> None:
        """Prediction, loss, backward, Adam."""
        self.optimizer.zero_grad()
        torch.autograd.backward(self.loss(), inputs=[*self.model.parameters()])
        self.optimizer.step()
