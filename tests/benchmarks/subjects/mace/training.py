"""A training step, an inference and kernels of MACE, on both sides alike."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from harness import training
from harness.structures import Arrays

OURS = "ours/"
"""What the names of our own weights begin with in the arrays of a subject."""
ENERGY_WEIGHT, FORCES_WEIGHT = 1.0, 100.0  # those of mace-torch by default


class TrainedNetwork(training.TrainedNetwork):
    """A network and a batch with its labels.

    Args:
        model: The network.
        arrays: Of the structures, one after the other.
        device: Where it computes.
    """

    def __init__(self, model: nn.Module, arrays: Arrays, device: str) -> None:
        super().__init__(model, device)
        self.energy, self.forces, self.n_atoms = (
            torch.from_numpy(arrays[name]).float().to(device)
            for name in ("energy", "forces", "n_atoms")
        )

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


class MovingAtoms(ABC):
    """A structure with a finished neighbour graph; every call sees other positions.

    Args:
        arrays: Numbers, positions and cell.
        dtype: Of positions and of the network.
    """

    def __init__(self, arrays: Arrays, dtype: torch.dtype) -> None:
        self.start = torch.from_numpy(arrays["positions"]).to(dtype)
        self.random = torch.Generator().manual_seed(0)
        self.calls = {"infer": self.infer}

    @abstractmethod
    def predict(self, positions: Tensor) -> dict[str, Tensor]:
        """Return energy (eV), forces (eV/Å) and stress (eV/Å³) of atoms at these positions."""

    def infer(self) -> None:
        """Predict after a step so small that no neighbour comes or goes."""
        step = torch.randn(self.start.shape, generator=self.random, dtype=self.start.dtype)
        self.predict(self.start + 1e-4 * step)

    def result(self) -> Arrays:
        """Return what is predicted of the structure as it starts."""
        outputs = self.predict(self.start)
        energy = outputs["energy"].detach().double() / len(self.start)
        arrays = {"energy": energy, "forces": outputs["forces"], "stress": outputs["stress"]}
        return {name: np.asarray(x.detach().double()) for name, x in arrays.items()}


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
