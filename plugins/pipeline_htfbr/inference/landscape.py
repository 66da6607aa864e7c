"""Common interface of fitted and exact surfaces: energies, gradients and Hessians at points.

Points are (n, d) in the units of the coordinates, energies in eV.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from pipeline_htfbr.data.surfaces import ExactSurface
from pipeline_htfbr.model import Surface

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Fitted:
    """Fitted surface; derivatives by autograd.

    Attributes:
        module: The surface in float64, on the CPU.
    """

    module: Surface

    def energies(self, x: Floats) -> Floats:
        """Return the energies, (n,)."""
        with torch.no_grad():
            return self.module.energies(torch.from_numpy(x)).numpy()

    def gradients(self, x: Floats) -> Floats:
        """Return the gradients, (n, d)."""
        with torch.enable_grad():
            return self._compute_gradients(torch.from_numpy(x).requires_grad_()).detach().numpy()

    def hessians(self, x: Floats) -> Floats:
        """Return the second derivatives, (n, d, d)."""
        with torch.enable_grad():
            place = torch.from_numpy(x).requires_grad_()
            sums = self._compute_gradients(place).sum(0)
            rows = [torch.autograd.grad(one, place, retain_graph=True)[0] for one in sums]
        return torch.stack(rows, dim=1).numpy()

    def _compute_gradients(self, place: torch.Tensor) -> torch.Tensor:
        energy = self.module.energies(place).sum()
        return torch.autograd.grad(energy, place, create_graph=True)[0]


@dataclass(frozen=True)
class Exact:
    """Exact surface; second derivatives by central differences of its gradients.

    Attributes:
        surface: The surface.
        steps: Steps of the differences, (d,).
    """

    surface: ExactSurface
    steps: Floats

    def energies(self, x: Floats) -> Floats:
        """Return the energies, (n,)."""
        return self.surface.energies(x)

    def gradients(self, x: Floats) -> Floats:
        """Return the gradients, (n, d)."""
        return self.surface.gradients(x)

    def hessians(self, x: Floats) -> Floats:
        """Return the second derivatives, (n, d, d)."""
        moves = np.diag(self.steps)[:, None]  # (d, 1, d)
        places = np.stack([x + moves, x - moves])  # (2, d, n, d)
        ahead, behind = self.gradients(places.reshape(-1, x.shape[1])).reshape(places.shape)
        rows = (ahead - behind) / (2 * self.steps[:, None, None])
        second: Floats = np.moveaxis(rows, 0, 1)
        return (second + np.swapaxes(second, 1, 2)) / 2


Landscape = Fitted | Exact
