"""The potential energy surface of HONO in six dimensions.

F. Richter, M. Hochlaf, P. Rosmus, F. Gatti and H.-D. Meyer, J. Chem. Phys. 120, 1306 (2004),
doi:10.1063/1.1632471, Eq. 15:

    V = S0 + exp(-D) Σ c q_NO^i q_ON^j q_OH^k (ϑ_ONO - ϑ⁰_ONO)^l (ϑ_HON - ϑ⁰_HON)^m cos(n (τ - π)),
    q = 1 - exp(-0.7 (r - r⁰)),    D = Σ d (x - x⁰)²

| equation | code                       | meaning                                                 |
|----------|----------------------------|---------------------------------------------------------|
| c        | `hono_coefficients.csv`    | 389 coefficients, hartree, and their powers i ... n     |
| x⁰       | `_Factor.reference`        | trans-HONO, bohr and radian                             |
| d        | `_Factor.damping`          | 1/bohr² and 1/radian²                                   |
| S0       | `_SHIFT`                   | hartree                                                 |
| NO       | `r_NO`                     | the terminal bond N=O                                   |
| ON       | `r_ON`                     | the central bond HO-NO                                  |

The formula takes the angles, the coordinates of the surface are their cosines. The small repulsive
term that the operator files of MCTDH add in the corners of the domain belongs neither to Eq. 15
nor to this surface. The damping, like all terms, is a product over coordinates, so the surface is
a sum of products: the terms are L^T C R with products L of bonds and R of angles.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from pipeline_core.units import BOHR, HARTREE
from pipeline_htfbr.data.molecule import Internal, Molecule, freeze
from pipeline_htfbr.data.points import Coordinate

Floats = NDArray[np.float64]

_SHIFT: Final = 0.2002292529406
_MORSE: Final = 0.7
"""1/bohr"""
_BATCH: Final = 2048
"""Points per block, such that their tables fit into the cache."""

COORDINATES: Final = (
    Coordinate(name="r_ON", unit="bohr", lower=2.10, upper=3.25),
    Coordinate(name="r_OH", unit="bohr", lower=1.30, upper=2.45),
    Coordinate(name="r_NO", unit="bohr", lower=1.90, upper=2.60),
    Coordinate(name="cos_HON", unit="1", lower=-0.65, upper=0.25),
    Coordinate(name="cos_ONO", unit="1", lower=-0.65, upper=-0.10),
    Coordinate(name="tau", unit="radian", lower=0.0, upper=float(np.pi), period=float(2 * np.pi)),
)
"""Domain of Table 1 of the HT-FBR paper. The surface is even in tau, so [0, π] is half a period."""


@dataclass(frozen=True)
class _Factor:
    """Factor of all terms that depends on one coordinate.

    Attributes:
        kind: Form of the powers.
        column: Column of its powers in the file.
        reference: x⁰.
        damping: d.
    """

    kind: Literal["bond", "cosine", "torsion"]
    column: str
    reference: float
    damping: float = 0.0

    def tabulate(self, x: Floats, powers: int) -> tuple[Floats, Floats]:
        """Return all powers at values (n,) of the coordinate, and their derivatives.

        Returns:
            Powers and derivatives, (powers, n) each.
        """
        p = np.arange(powers, dtype=np.float64)[:, None]
        if self.kind == "torsion":
            phase = p * (x - self.reference)
            return np.cos(phase), -p * np.sin(phase)
        if self.kind == "cosine":
            x, slope = np.arccos(x), -1 / np.sqrt(1 - x**2)
            base, inner = x - self.reference, np.ones_like(x)
        else:
            decay, slope = np.exp(-_MORSE * (x - self.reference)), np.ones_like(x)
            base, inner = 1 - decay, _MORSE * decay
        raised = np.vander(base, powers, increasing=True).T
        lowered = np.vstack([np.zeros_like(x), raised[:-1]]) * p * inner
        damping = np.exp(-self.damping * (x - self.reference) ** 2)
        steepness = -2 * self.damping * (x - self.reference)
        return raised * damping, (lowered + raised * steepness) * damping * slope


FACTORS: Final = (
    _Factor("bond", "ON", 2.696732586, 1 / 9),
    _Factor("bond", "OH", 1.822912197, 1 / 4),
    _Factor("bond", "NO", 2.213326419, 1.0),
    _Factor("cosine", "HON", 1.777642018, 1 / 4),
    _Factor("cosine", "ONO", 1.9315017, 1 / 4),
    _Factor("torsion", "tau", float(np.pi)),
)
"""In the order of the coordinates: three bonds, then three angles."""


@dataclass(frozen=True)
class _Terms:
    """All terms as a bilinear form of products of bonds and products of angles.

    Attributes:
        bonds: Powers in each product of bonds, (n_left, 3).
        angles: Powers in each product of angles, (n_right, 3).
        c: Coefficients, (n_left, n_right) hartree.
    """

    bonds: NDArray[np.int64]
    angles: NDArray[np.int64]
    c: Floats

    @property
    def counts(self) -> list[int]:
        """Number of powers of each coordinate, zero included."""
        return [int(p.max()) + 1 for p in (*self.bonds.T, *self.angles.T)]


class HONO:
    """The surface, as an `ExactSurface`."""

    @property
    def coordinates(self) -> tuple[Coordinate, ...]:
        """Three bonds, the cosines of two angles, the torsion."""
        return COORDINATES

    @property
    def grid(self) -> tuple[int, ...]:
        """Ten points along each coordinate."""
        return (10,) * len(COORDINATES)

    @property
    def molecule(self) -> Molecule:
        """H-O-N=O with the most abundant isotopes."""
        return _make_molecule()

    def energies(self, x: Floats) -> Floats:
        """Return the energies at points (n, 6), (n,) eV.

        Raises:
            ValueError: A cosine is not between -1 and 1.
        """
        terms, energy = _read_terms(), np.empty(len(x))
        for rows, tables in _iterate_batches(x):
            left = _multiply([f for f, _ in tables[:3]], terms.bonds)
            right = _multiply([f for f, _ in tables[3:]], terms.angles)
            energy[rows] = np.einsum("ln,ln->n", left, terms.c @ right)
        return (_SHIFT + energy) * HARTREE

    def gradients(self, x: Floats) -> Floats:
        """Return the gradients at points (n, 6), (n, 6) eV per unit of the coordinate.

        Raises:
            ValueError: A cosine is not between -1 and 1.
        """
        terms, gradient = _read_terms(), np.empty(x.shape)
        for rows, tables in _iterate_batches(x):
            bonds, angles = tables[:3], tables[3:]
            of_left = terms.c @ _multiply([f for f, _ in angles], terms.angles)
            of_right = terms.c.T @ _multiply([f for f, _ in bonds], terms.bonds)
            for side, powers, other, first in (
                (bonds, terms.bonds, of_left, 0),
                (angles, terms.angles, of_right, 3),
            ):
                for k in range(3):
                    factors = [pair[int(i == k)] for i, pair in enumerate(side)]
                    slope = np.einsum("ln,ln->n", _multiply(factors, powers), other)
                    gradient[rows, first + k] = slope
        return gradient * HARTREE


def _iterate_batches(x: Floats) -> Iterator[tuple[slice, list[tuple[Floats, Floats]]]]:
    """Yield rows of x, and the tables of all coordinates there."""
    for k in (3, 4):
        bad = np.flatnonzero(~(np.abs(x[:, k]) <= 1))
        if len(bad):
            raise ValueError(
                f"HONO: {COORDINATES[k].name} is {x[bad[0], k]:g} at point {bad[0]}; it is the "
                "cosine of an angle and must lie between -1 and 1"
            )
    counts = _read_terms().counts
    for start in range(0, len(x), _BATCH):
        rows = slice(start, start + _BATCH)
        columns = np.ascontiguousarray(x[rows].T)
        yield rows, [f.tabulate(v, n) for f, v, n in zip(FACTORS, columns, counts, strict=True)]


def _multiply(tables: list[Floats], powers: NDArray[np.int64]) -> Floats:
    """Multiply powers of coordinates, (n_products, n)."""
    product: Floats = tables[0][powers[:, 0]]
    for table, p in zip(tables[1:], powers.T[1:], strict=True):
        product *= table[p]
    return product


@lru_cache(maxsize=1)
def _read_terms() -> _Terms:
    path = Path(__file__).with_name("hono_coefficients.csv")
    rows = np.genfromtxt(path, delimiter=",", skip_header=3, names=True)
    powers = np.stack([rows[factor.column] for factor in FACTORS], axis=1).astype(np.int64)
    bonds, left = np.unique(powers[:, :3], axis=0, return_inverse=True)
    angles, right = np.unique(powers[:, 3:], axis=0, return_inverse=True)
    c = np.zeros((len(bonds), len(angles)))
    c[left, right] = rows["c"]
    return _Terms(bonds, angles, c)


@lru_cache(maxsize=1)
def _make_molecule() -> Molecule:
    """Place trans-HONO in the plane z = 0; atoms H, O, N, O."""
    on, oh, no, hon, ono, _ = (factor.reference for factor in FACTORS)
    # O in the origin, N on the x axis; H and the other O on opposite sides of it.
    positions = BOHR * np.array(
        [
            [oh * np.cos(hon), oh * np.sin(hon), 0.0],
            [0.0, 0.0, 0.0],
            [on, 0.0, 0.0],
            [on - no * np.cos(ono), -no * np.sin(ono), 0.0],
        ]
    )
    return Molecule(
        symbols=("H", "O", "N", "O"),
        # ¹H, ¹⁶O and ¹⁴N, atomic mass evaluation of 2020.
        masses=(1.00782503190, 15.99491461926, 14.00307400425, 15.99491461926),
        reference=freeze(positions.tolist()),
        variables=(
            Internal("distance", (1, 2)),
            Internal("distance", (0, 1)),
            Internal("distance", (2, 3)),
            Internal("cosine", (0, 1, 2)),
            Internal("cosine", (1, 2, 3)),
            Internal("dihedral", (0, 1, 2, 3)),
        ),
    )
