"""Functions of an edge: radial basis, spherical harmonics, and the repulsion of a pair."""

from collections.abc import Sequence
from math import pi, sqrt

import torch
from ase.data import covalent_radii
from torch import Tensor, nn

from pipeline_kernels.equivariant.harmonics import solid_harmonics


class RadialBasis(nn.Module):
    """Bessel functions under a polynomial envelope (arXiv:2003.03123, eqs. 7 and 8).

        sqrt(2/c) sin(n π r/c)/r u(r/c),
        u(x) = 1 − (p+1)(p+2)/2 x^p + p(p+2) x^(p+1) − p(p+1)/2 x^(p+2)

    Args:
        count: Number of functions.
        cutoff: c, Å.
        power: p.
    """

    frequencies: Tensor

    def __init__(self, count: int, cutoff: float, power: int) -> None:
        super().__init__()
        self.cutoff, self.power = cutoff, power
        frequencies = torch.arange(1, count + 1, dtype=torch.float64) * pi / cutoff
        self.register_buffer("frequencies", frequencies, persistent=False)

    def forward(self, distance: Tensor, transformed: Tensor | None = None) -> Tensor:
        """Return the functions at distances (n_edges,) Å, (n_edges, count).

        Args:
            distance: Argument of the envelope.
            transformed: Argument of the Bessel functions, the distance if None.
        """
        r = (distance if transformed is None else transformed)[:, None]
        waves = torch.sin(self.frequencies.to(r.dtype) * r) / r
        envelope = compute_envelope(distance / self.cutoff, self.power)
        return sqrt(2 / self.cutoff) * waves * envelope[:, None]


def compute_envelope(x: Tensor, p: int) -> Tensor:
    """Return u(x) of `RadialBasis`, zero from 1 on."""
    inside = (
        1
        - (p + 1) * (p + 2) / 2 * x**p
        + p * (p + 2) * x ** (p + 1)
        - p * (p + 1) / 2 * x ** (p + 2)
    )
    return torch.where(x < 1, inside, torch.zeros_like(inside))


class PairRadii(nn.Module):
    """Base of modules that use the covalent radii of both atoms of an edge."""

    radii: Tensor

    def __init__(self) -> None:
        super().__init__()
        radii = torch.tensor(covalent_radii, dtype=torch.float64)
        self.register_buffer("radii", radii, persistent=False)

    def add_radii(self, ends: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
        """Return the sum of the covalent radii for two atomic numbers (n_edges,), Å."""
        total: Tensor = self.radii[ends[0]] + self.radii[ends[1]]
        return total.to(dtype)


class AgnesiTransform(PairRadii):
    """Agnesi transform of a distance: 1 for atoms at one place, 0 for atoms far apart.

        1 / (1 + a x^q / (1 + x^(q−p))),    x = r / r_0,

    with r_0 the mean of the covalent radii (doi:10.1063/5.0158783).
    """

    a: Tensor
    q: Tensor
    p: Tensor

    def __init__(self) -> None:
        super().__init__()
        for name, value in {"a": 1.0805, "q": 0.9183, "p": 4.5791}.items():
            self.register_buffer(name, torch.tensor(value))

    def forward(self, distance: Tensor, ends: Sequence[Tensor]) -> Tensor:
        """Transform distances (n_edges,) Å, given the atomic numbers of both atoms."""
        x = distance / (0.5 * self.add_radii(ends, distance.dtype))
        return 1 / (1 + self.a * x**self.q / (1 + x ** (self.q - self.p)))


class PairRepulsion(PairRadii):
    """Screened Coulomb repulsion of Ziegler, Biersack and Littmark (ZBL), cut off by an envelope.

        E = e² Z_i Z_j / r Σ_k c_k exp(−d_k r/a) u(r/r_0),    a = a_0 · 0.529 Å / (Z_i^x + Z_j^x),

    with r_0 the sum of the covalent radii and u of `RadialBasis`; as in mace-torch, whose networks
    carry c, a_0 and x.

    Args:
        power: Power of the envelope.
    """

    c: Tensor
    exponent: Tensor
    prefactor: Tensor
    decays: Tensor

    def __init__(self, power: int) -> None:
        super().__init__()
        self.power = power
        self.register_buffer("c", torch.tensor([0.1818, 0.5099, 0.2802, 0.02817]))
        self.register_buffer("exponent", torch.tensor(0.3))
        self.register_buffer("prefactor", torch.tensor(0.4543))
        decays = torch.tensor([3.2, 0.9423, 0.4028, 0.2016])
        self.register_buffer("decays", decays, persistent=False)

    def forward(self, distance: Tensor, ends: tuple[Tensor, Tensor]) -> Tensor:
        """Return half the energy of pairs, (n_edges,) eV: each pair has two directed edges."""
        first, second = (numbers.to(distance.dtype) for numbers in ends)
        length = self.prefactor * 0.529 / (first**self.exponent + second**self.exponent)
        x = (distance / length)[:, None]
        screening = torch.exp(-self.decays * x) @ self.c
        envelope = compute_envelope(distance / self.add_radii(ends, distance.dtype), self.power)
        return 0.5 * 14.3996 * first * second / distance * screening * envelope


def compute_spherical_harmonics(vectors: Tensor, lmax: int) -> Tensor:
    """Return real spherical harmonics of directions, with norm² 2 l + 1 for degree l.

    Components are ordered as in e3nn: m = -l, ..., l about the axis y, hence (x, y, z) for l = 1.

    Args:
        vectors: (n_edges, 3), of any length but zero.
        lmax: Highest degree.

    Returns:
        (n_edges, (lmax + 1)²).
    """
    directions = vectors / torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
    # Harmonics of (z, x, y) about z are the harmonics of (x, y, z) about y.
    return solid_harmonics(directions.roll(1, dims=1), lmax)
