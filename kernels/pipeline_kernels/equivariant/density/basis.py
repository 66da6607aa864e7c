"""The functions that a density is projected on."""

from dataclasses import dataclass
from math import hypot
from typing import Final

import torch
from torch import Tensor

SOFTENING: Final = 1.0  # Å, of distances and directions near the middle


@dataclass(frozen=True)
class DensityBasis:
    """Basis functions of the position of an atom relative to the middle of an edge.

    Attributes:
        lmax: highest degree of the harmonics.
        n_functions: number of Gaussians of the distance.
        cutoff: distance up to which atoms count, Å.
        n_kinds: number of kinds of atoms.

    Raises:
        ValueError: if a number is out of range.
    """

    lmax: int
    n_functions: int
    cutoff: float
    n_kinds: int

    def __post_init__(self) -> None:
        if self.lmax < 0 or self.n_functions < 1 or self.cutoff <= 0 or self.n_kinds < 1:
            raise ValueError(
                "expected lmax of at least 0, n_functions and n_kinds of at least 1 and a cutoff "
                f"above 0, got {self}"
            )

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of an edge: harmonics, then kinds times Gaussians."""
        return (self.lmax + 1) ** 2, self.n_kinds * self.n_functions

    @property
    def width(self) -> float:
        """Width of the Gaussians and distance of their centres, Å."""
        return (hypot(self.cutoff, SOFTENING) - SOFTENING) / self.n_functions

    def evaluate_radial(self, distances: Tensor) -> Tensor:
        """Return f g_n at distances `(n,)` below the cutoff, `(n, n_functions)`."""
        centres = torch.arange(self.n_functions, dtype=distances.dtype, device=distances.device)
        softened = (distances.square() + SOFTENING**2).sqrt() - SOFTENING
        gaussians = torch.exp(-0.5 * (softened[:, None] / self.width - centres).square())
        return gaussians * (1 - (distances / self.cutoff).square()).square()[:, None]
