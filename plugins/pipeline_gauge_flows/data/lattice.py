"""Periodic lattices and their SU(N) links.

Links are complex tensors (batch, D, V, N, N): U_mu(x) leads from site x to site x + mu. Sites are
numbered row by row, the last direction fastest. Direction 0 is time. A gauge transformation takes
U_mu(x) to O(x) U_mu(x) O(x + mu)^dag.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations
from math import prod

import numpy as np
import torch
from torch import Tensor

from pipeline_kernels.su3 import draw_haar


@dataclass(frozen=True)
class Lattice:
    """Periodic lattice of SU(N) links.

    Attributes:
        extents: Sites along each direction, time first.
        n_colours: N of SU(N).

    Raises:
        ValueError: The dimension is not 2 to 4, an extent is below 2, or the group is not SU(2)
            or SU(3).
    """

    extents: tuple[int, ...]
    n_colours: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "extents", tuple(self.extents))
        if len(self.extents) not in (2, 3, 4):
            raise ValueError(
                f"extents {list(self.extents)}: {len(self.extents)} directions; give 2, 3 or 4"
            )
        if min(self.extents) < 2:
            # With one site a link would occur twice in a plaquette.
            raise ValueError(f"extents {list(self.extents)}: give at least 2 sites per direction")
        if self.n_colours not in (2, 3):
            raise ValueError(f"n_colours {self.n_colours}: only SU(2) and SU(3); give 2 or 3")

    @property
    def dimension(self) -> int:
        """Number of directions D."""
        return len(self.extents)

    @property
    def volume(self) -> int:
        """Number of sites V."""
        return prod(self.extents)

    @property
    def n_links(self) -> int:
        """Number of links, D V."""
        return self.dimension * self.volume

    @property
    def planes(self) -> list[tuple[int, int]]:
        """Pairs (mu, nu) with mu < nu, in order."""
        return list(combinations(range(self.dimension), 2))

    @property
    def n_plaquettes(self) -> int:
        """Number of plaquettes."""
        return len(self.planes) * self.volume

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape (D, V, N, N) of the links of one configuration."""
        return (self.dimension, self.volume, self.n_colours, self.n_colours)

    @cached_property
    @torch.inference_mode(False)
    def coordinates(self) -> Tensor:
        """Coordinates of the sites, (V, D) int64."""
        # Tables outlive the caller's inference mode, and may later be saved for a backward pass.
        axes = [torch.arange(extent) for extent in self.extents]
        return torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1).reshape(self.volume, -1)

    @cached_property
    def forward(self) -> Tensor:
        """Sites x + mu, (D, V) int64."""
        return self._shift_sites(-1)

    @cached_property
    def backward(self) -> Tensor:
        """Sites x - mu, (D, V) int64."""
        return self._shift_sites(1)

    @torch.inference_mode(False)
    def _shift_sites(self, shift: int) -> Tensor:
        sites = torch.arange(self.volume).reshape(self.extents)
        return torch.stack([sites.roll(shift, mu).flatten() for mu in range(self.dimension)])


@lru_cache(maxsize=64)
@torch.inference_mode(False)
def make_neighbours(lattice: Lattice, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the tables `forward` and `backward` on a device, each (D, V) int64."""
    return lattice.forward.to(device), lattice.backward.to(device)


def seed_generator(*numbers: int) -> torch.Generator:
    """Return a generator on the CPU, seeded by several numbers together."""
    (state,) = np.random.SeedSequence(numbers).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state))


def make_cold(lattice: Lattice, n_configurations: int = 1) -> Tensor:
    """Return links that are all 1, (n_configurations, D, V, N, N) complex128."""
    identity = torch.eye(lattice.n_colours, dtype=torch.complex128)
    return identity.expand(n_configurations, *lattice.shape).clone()


def draw_hot(
    lattice: Lattice,
    n_configurations: int = 1,
    generator: torch.Generator | None = None,
    dtype: torch.dtype = torch.complex128,
) -> Tensor:
    """Return links drawn from the Haar measure, (n_configurations, D, V, N, N)."""
    matrices = draw_haar(n_configurations * lattice.n_links, lattice.n_colours, generator, dtype)
    return matrices.reshape(n_configurations, *lattice.shape)
