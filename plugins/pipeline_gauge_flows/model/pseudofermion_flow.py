"""Flows of pseudofermions, conditional on links U and U' = f(U): linear maps T, gauge-equivariant.

On odd sites only, with M, M' short for Mhat at U and at U', phi = M^dagger chi is drawn with the
density exp(-|M^-dagger phi|^2), and

    w = exp(|chi|^2 - |M'^-dagger T phi|^2) |det T|^2

has the mean |det M'|^2 / |det M|^2 for any T. Its variance is zero for T = M'^dagger M^-dagger.

A layer updates the odd sites of one class by two hops from the sites of the other class,

    T_l = 1 + P_A sum_ab kappa_a H^dagger_oe(a) (c_ab + i d_ab gamma5) kappa_b H^dagger_eo(b) P_B,

where a and b are U or U'. So det T = 1, and the inverse has opposite coefficients. M^dagger has
the same hops. Classes are the parity of (s x - 1) / 2, where s x is a sum of coordinates with
signs: so sites connected by two hops around a corner are separated by half of the patterns of
signs, sites connected by two hops in a straight line by all of them.

Abbott et al., arXiv:2502.00263, section 3, and arXiv:2207.08945 for pseudofermions of flows.
"""

from functools import lru_cache
from typing import Final, NamedTuple

import torch
from torch import Tensor, nn

from pipeline_gauge_flows.data.lattice import Lattice
from pipeline_kernels.dirac import DiracOperator
from pipeline_kernels.dirac.geometry import EVEN, ODD
from pipeline_kernels.dirac.reference import make_gammas

_SIGNS: Final = {
    2: ((1, 1), (1, -1)),
    4: ((1, 1, 1, 1), (1, 1, -1, -1), (1, -1, 1, -1), (1, -1, -1, 1)),
}
"""Patterns of signs in each dimension."""
_PERIOD: Final = 4
"""Divisor of all extents, for classes to close around the lattice."""

_START: Final = 0.5
"""Initial fraction of the hops around corners; straight hops have twice as much, all of them. The
divergence for random steps of smooth links in two dimensions is minimal near it, higher at 1."""


class Operators(NamedTuple):
    """Dirac operators at the links before and after a flow of links."""

    before: DiracOperator
    after: DiracOperator


class Mask(NamedTuple):
    """Odd sites moved by a layer: one class of one pattern of signs."""

    pattern: int
    side: int


def require_classes(lattice: Lattice) -> None:
    """Check that the odd sites of a lattice have classes.

    Raises:
        ValueError: They do not.
    """
    if lattice.dimension not in _SIGNS or any(extent % _PERIOD for extent in lattice.extents):
        raise ValueError(
            f"flows of pseudofermions act in two and four dimensions on extents that are multiples "
            f"of {_PERIOD}, not on {list(lattice.extents)}; choose another lattice"
        )


def list_masks(n_layers: int, dimension: int) -> list[Mask]:
    """Return the masks of a flow; the second half repeats the first in the opposite order.

    So the second half of the layers can invert the first: for U' = U the best T is 1.
    """
    n_patterns = len(_SIGNS[dimension])
    half = [Mask(k // 2 % n_patterns, k % 2) for k in range(n_layers // 2)]
    return half + half[::-1]


@lru_cache(maxsize=64)
@torch.inference_mode(False)
def make_mask(mask: Mask, lattice: Lattice, device: torch.device) -> Tensor:
    """Return the mask of odd sites that a layer moves, (V / 2, 1, 1) bool."""
    require_classes(lattice)
    odd = lattice.coordinates[lattice.coordinates.sum(1) % 2 == 1]
    total = odd @ torch.tensor(_SIGNS[lattice.dimension][mask.pattern])
    side = torch.div(total - 1, 2, rounding_mode="floor") % 2
    return (side == mask.side)[:, None, None].to(device)


class PseudofermionLayer(nn.Module):
    """Masked linear layer.

    Args:
        mask: Sites that move.
        before: Initial c of two hops by U; other coefficients start at zero.
        after: Initial c of two hops by U'.
    """

    def __init__(self, mask: Mask, before: float, after: float) -> None:
        super().__init__()
        self.mask = mask
        start = torch.zeros(2, 2, 2)
        start[0, 0, 0], start[0, 1, 1] = before, after
        self.coefficients = nn.Parameter(start)
        """c and d as [:, a, b], for hops by b and then by a, each 0 for U and 1 for U'."""

    def forward(
        self, phi: Tensor, operators: Operators, lattice: Lattice, inverse: bool = False
    ) -> Tensor:
        """Map pseudofermions, or map them by the inverse.

        Args:
            phi: (batch, shots, V / 2, S, N) complex128.
            operators: Dirac operators at the links on which T is conditional.
            lattice: The lattice.
            inverse: Apply the inverse map.
        """
        active = make_mask(self.mask, lattice, phi.device)
        gamma5 = 1j * make_gammas(lattice.dimension, phi.device)[1].unsqueeze(-1)
        frozen = phi.masked_fill(active, 0)
        brought = [one.kappa * one.hop(frozen, EVEN, adjoint=True) for one in operators]
        total = torch.zeros_like(phi)
        for one, (c, d) in zip(operators, self.coefficients.double().unbind(1), strict=True):
            terms = [(c[b] + d[b] * gamma5) * psi for b, psi in enumerate(brought)]
            total = total + one.kappa * one.hop(terms[0] + terms[1], ODD, adjoint=True)
        step = total.masked_fill(~active, 0)
        return phi - step if inverse else phi + step


class PseudofermionFlow(nn.Module):
    """Sequence of layers: T with det T = 1.

    Initially it has a fraction of the leading hopping terms of M'^dagger M^-dagger: by U in the
    first half of the layers, by U' in the second. So it is 1 for U' = U.

    Args:
        n_layers: Number of layers, even.
        lattice: The lattice; weights depend on its dimension only.

    Raises:
        ValueError: The odd sites of the lattice have no classes.
    """

    def __init__(self, n_layers: int, lattice: Lattice) -> None:
        super().__init__()
        require_classes(lattice)
        masks, half = list_masks(n_layers, lattice.dimension), n_layers // 2
        # Half of the patterns separate sites around a corner; two layers per pattern move both.
        c = _START * 4 / half
        layers = [PseudofermionLayer(mask, c, 0.0) for mask in masks[:half]]
        layers += [PseudofermionLayer(mask, 0.0, -c) for mask in masks[half:]]
        self.layers = nn.ModuleList(layers)

    def forward(
        self, phi: Tensor, operators: Operators, lattice: Lattice, inverse: bool = False
    ) -> Tensor:
        """Return T phi or T^-1 phi, (batch, shots, V / 2, S, N) complex128."""
        for layer in reversed(self.layers) if inverse else self.layers:
            phi = layer(phi, operators, lattice, inverse)
        return phi
