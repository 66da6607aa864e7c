"""What is measured of MACE's inference on all sides alike: one structure whose atoms move."""

from abc import ABC, abstractmethod

import numpy as np
import torch
from _mace_subjects import Arrays
from torch import Tensor


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
