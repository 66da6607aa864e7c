"""What is measured of both sides alike: a network that is trained, a kernel that is derived."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import ase
import numpy as np
import torch
from torch import Tensor, nn

Arrays = dict[str, np.ndarray]
ENERGY_WEIGHT, FORCES_WEIGHT = 1.0, 100.0  # those of mace-torch by default


class TrainedNetwork(ABC):
    """A network and a batch with its labels.

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
        self.model, self.device = model.to(device), device
        self.energy, self.forces, self.n_atoms = (
            torch.from_numpy(arrays[name]).float().to(device)
            for name in ("energy", "forces", "n_atoms")
        )
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-6, fused=self.fused)
        self.calls = {"infer": self.infer, "step": self.step}

    @abstractmethod
    def predict(self, training: bool) -> tuple[Tensor, Tensor]:
        """Put the batch together; return energies (n_structures,) and forces (n_atoms, 3)."""

    def infer(self) -> tuple[Tensor, Tensor]:
        """Predict; nothing is differentiated by the weights."""
        self.model.requires_grad_(False)
        return self.predict(training=False)

    def loss(self) -> Tensor:
        """Mean squares of energies an atom and of forces, as in mace-torch."""
        self.model.requires_grad_(True)
        energy, forces = self.predict(training=True)
        by_energy = ((energy - self.energy) / self.n_atoms).square().mean()
        by_forces = (forces - self.forces).square().mean()
        return ENERGY_WEIGHT * by_energy.float() + FORCES_WEIGHT * by_forces

    @abstractmethod
    def differentiate(self, loss: Tensor) -> None:
        """Differentiate the loss as the side's own training does."""

    def step(self) -> None:
        """Batch, energies and forces, loss, backward, Adam."""
        self.optimizer.zero_grad()
        self.differentiate(self.loss())
        self.optimizer.step()

    def result(self) -> Arrays:
        """Return energies, forces, the loss, and the norm of its gradient in the interactions.

        Elsewhere the sides may have different weights for the same products.
        """
        energy, forces = self.infer()
        loss = self.loss()
        loss.backward()
        gradients = [p.grad.flatten() for p in self.model.interactions.parameters()]
        gradient = torch.cat(gradients).norm()
        actual = {"energy": energy, "forces": forces, "loss": loss, "gradient": gradient}
        return {name: value.detach().cpu().numpy() for name, value in actual.items()}


class Kernel:
    """A function that is linear or a polynomial in each operand, and its derivatives.

    Args:
        value: The function.
        operands: Its arguments, by name.
        cotangent: Of its result.
        moving: Names of the operands that depend on the positions of atoms.
        common: Brings the result into the layout of the kernels here.
    """

    def __init__(
        self,
        value: Callable[..., Tensor],
        operands: dict[str, Tensor],
        cotangent: Tensor,
        moving: Sequence[str],
        common: Callable[[Tensor], Tensor] = lambda result: result,
    ) -> None:
        self.value, self.common = value, common
        self.operands = {name: x.requires_grad_() for name, x in operands.items()}
        self.cotangent = cotangent.requires_grad_()
        self.moving = [self.operands[name] for name in moving]
        self.directions = [x.detach().clone() for x in self.moving]
        self.calls: dict[str, Callable[[], Any]] = {
            "forward": self.forward,
            "forward and backward": self.gradient,
            "training": self.training,
        }

    def forward(self) -> Tensor:
        """The function alone."""
        with torch.no_grad():
            return self.value(*self.operands.values())

    def gradient(self) -> tuple[Tensor, ...]:
        """The function and its derivatives by all operands."""
        operands = [*self.operands.values()]
        return torch.autograd.grad(self.value(*operands), operands, self.cotangent)

    def training(self) -> tuple[Tensor, ...]:
        """The function, derivatives by what moves (forces), and derivatives of these by all."""
        operands = [*self.operands.values()]
        result = self.value(*operands)
        first = torch.autograd.grad(result, self.moving, self.cotangent, create_graph=True)
        return torch.autograd.grad(first, [*operands, self.cotangent], self.directions)

    def result(self) -> Arrays:
        """Return the result, and norms of derivatives, which do not depend on the layout."""
        actual = {"value": self.common(self.forward())}
        names = [name for name in self.operands if "weights" not in name]  # the peer has fewer
        for order, call in (("first", self.gradient), ("second", self.training)):
            derivatives = dict(zip(self.operands, call(), strict=False))
            actual |= {f"{order} by {name}": derivatives[name].norm() for name in names}
        return {name: value.detach().numpy() for name, value in actual.items()}


def read_structures(arrays: Arrays) -> list[ase.Atoms]:
    """Return the structures of a batch."""
    ends = np.cumsum(arrays["n_atoms"])[:-1]
    parts = (np.split(arrays[name], ends) for name in ("numbers", "positions"))
    rows = zip(*parts, arrays["cells"], strict=True)
    return [ase.Atoms(z, r, cell=cell, pbc=True) for z, r, cell in rows]
