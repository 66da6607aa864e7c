"""Products of irreducible representations of O(3): which ones occur, with which coefficients.

Components follow e3nn: real spherical harmonics in the order m = -l, ..., l about the axis y,
hence (x, y, z) for l = 1, so that a vector is its own representation.
"""

from functools import cache
from itertools import product
from math import factorial, prod, sqrt
from typing import NamedTuple, Self

import numpy as np


class Irrep(NamedTuple):
    """An irreducible representation of O(3).

    Attributes:
        l: degree.
        parity: 1 if inversion leaves it unchanged, -1 if inversion changes its sign.
    """

    l: int  # noqa: E741 (its name in every paper)
    parity: int

    @property
    def dim(self) -> int:
        """Number of components."""
        return 2 * self.l + 1

    @classmethod
    def parse(cls, name: str) -> Self:
        """Read a name as `0e` or `1o`: the degree, then `e` for even or `o` for odd.

        Raises:
            ValueError: if the name is invalid.
        """
        degree, parity = name.strip()[:-1], name.strip()[-1:]
        if not degree.isdecimal() or parity not in ("e", "o"):
            raise ValueError(f"irreps: expected a degree and e or o, as in 0e or 1o, got {name!r}")
        return cls(int(degree), 1 if parity == "e" else -1)

    def multiply(self, other: "Irrep") -> "list[Irrep]":
        """Decompose the product with another one, by degree."""
        degrees = range(abs(self.l - other.l), self.l + other.l + 1)
        return [Irrep(degree, self.parity * other.parity) for degree in degrees]

    def __str__(self) -> str:
        return f"{self.l}{'e' if self.parity == 1 else 'o'}"


@cache
def clebsch_gordan(l1: int, l2: int, l3: int) -> np.ndarray:
    """Couple two real representations to a third.

    The sign follows `e3nn.o3.wigner_3j`, the sum of squares is 1.

    Args:
        l1: degree of the first.
        l2: degree of the second.
        l3: degree of the result, from `|l1 - l2|` to `l1 + l2`.

    Returns:
        `C[m1, m2, m3]` such that `sum C x[m1] y[m2]` rotates as degree `l3`, `(2 l1 + 1, 2 l2 + 1,
        2 l3 + 1)` float64, not to be written to.

    Raises:
        ValueError: if the product does not contain the degree.
    """
    if min(l1, l2) < 0 or not abs(l1 - l2) <= l3 <= l1 + l2:
        raise ValueError(
            f"degrees: expected l3 from |l1 - l2| to l1 + l2, got l1 = {l1}, l2 = {l2}, l3 = {l3}"
        )
    coefficients = np.zeros((2 * l1 + 1, 2 * l2 + 1, 2 * l3 + 1))
    for m1, m2 in product(range(-l1, l1 + 1), range(-l2, l2 + 1)):
        if abs(m1 + m2) <= l3:
            coefficients[l1 + m1, l2 + m2, l3 + m1 + m2] = _racah(l1, m1, l2, m2, l3)
    bases = _build_real_basis(l1), _build_real_basis(l2), _build_real_basis(l3).conj()
    real: np.ndarray = np.einsum("abc,ai,bj,ck->ijk", coefficients, *bases).real
    real[abs(real) < 1e-14] = 0  # roundings, where terms cancel
    real /= np.linalg.norm(real)
    real.flags.writeable = False
    return real


def _racah(j1: int, m1: int, j2: int, m2: int, J: int) -> float:
    """Return `<j1 m1 j2 m2 | J M>` by the formula of G. Racah, Phys. Rev. 62, 438 (1942)."""
    M, f = m1 + m2, factorial
    triangle = f(j1 + j2 - J) * f(J + j1 - j2) * f(J - j1 + j2) / f(j1 + j2 + J + 1)
    states = prod(map(f, (J + M, J - M, j1 - m1, j1 + m1, j2 - m2, j2 + m2)))
    total = 0.0
    for k in range(max(0, j2 - J - m1, j1 - J + m2), min(j1 + j2 - J, j1 - m1, j2 + m2) + 1):
        below = (k, j1 + j2 - J - k, j1 - m1 - k, j2 + m2 - k, J - j2 + m1 + k, J - j1 - m2 + k)
        total += (-1) ** k / prod(map(f, below))
    return sqrt((2 * J + 1) * triangle * states) * total


def _build_real_basis(degree: int) -> np.ndarray:
    """Return the unitary matrix whose columns are real harmonics in terms of complex ones.

    The phase `(-i)^l` makes every coupling real.
    """
    columns = np.zeros((2 * degree + 1, 2 * degree + 1), complex)
    columns[degree, degree] = 1
    for m in range(1, degree + 1):
        plus, minus, sign = degree + m, degree - m, (-1) ** m
        columns[[minus, plus], plus] = sqrt(0.5), sign * sqrt(0.5)
        columns[[minus, plus], minus] = -1j * sqrt(0.5), 1j * sign * sqrt(0.5)
    return (-1j) ** degree * columns
