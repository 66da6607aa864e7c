"""Sources of quark propagators: noise on a time slice.

eta is a random (+-1 +-i) / sqrt(2) for each site, spin and colour of the slice. The mean of
eta eta^dagger is the unit matrix there, so that the mean of |M^-1 eta|^2 is the sum over points of
the slice: the one-end trick, Foster and Michael, Phys. Rev. D 59, 074503 (1999); McNeile and
Michael, Phys. Rev. D 73, 074506 (2006).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from pipeline_gauge_flows.data.lattice import Lattice


@dataclass(frozen=True)
class Sources:
    """Right-hand sides of each configuration of a batch.

    Attributes:
        spinors: eta, (batch, n_rhs, V, S, N) complex128.
        times: Time slice of each, (batch, n_rhs).
        weight: Weight of |M^-1 eta|^2 in the correlator of one point.
    """

    spinors: Tensor
    times: Tensor
    weight: float


def draw_sources(
    n_sources: int, lattice: Lattice, generators: Iterable[torch.Generator]
) -> Sources:
    """Draw noise of Z(4) on random slices, with a generator for each configuration."""
    shape = n_sources, lattice.volume, lattice.dimension, lattice.n_colours
    spinors, times = [], []
    for generator in generators:
        signs = 1.0 - 2.0 * torch.randint(2, (*shape, 2), generator=generator).double()
        noise = torch.view_as_complex(signs) / 2**0.5
        times.append(torch.randint(lattice.extents[0], (n_sources,), generator=generator))
        on_slice = lattice.coordinates[:, 0] == times[-1][:, None]  # (n_sources, V)
        spinors.append(noise * on_slice[:, :, None, None])
    weight = 1 / (n_sources * prod(lattice.extents[1:]))
    return Sources(torch.stack(spinors), torch.stack(times), weight)
