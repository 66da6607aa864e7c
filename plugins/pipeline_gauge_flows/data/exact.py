"""Character expansions of the Wilson action, and exact results in two dimensions.

| symbol | here                                                                                |
|--------|-------------------------------------------------------------------------------------|
| a_r    | (1/d_r) integral of chi_r(U)^* exp(beta/N Re tr U) over SU(N), `Characters.a`       |
| d_r    | dimension of the representation r, `Characters.dimension`                           |
| u      | a_f/a_0 of the fundamental representation: the plaquette in two dimensions          |
| Z      | integral of exp(-S) over all links                                                  |
| P      | mean of Re tr/N of a plaquette, (1/n_plaquettes) d log Z/d beta                     |

Drouffe and Zuber, Phys. Rept. 102, 1 (1983).
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise, product

import numpy as np
from numpy.typing import NDArray
from scipy.special import iv

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Characters:
    """Character expansion of exp(beta/N Re tr U).

    Attributes:
        dimension: d_r, (n,); the trivial representation is the first, the fundamental the second.
        a: a_r, (n,).
        slope: Derivatives of a_r by beta, (n,).
    """

    dimension: Floats
    a: Floats
    slope: Floats

    @property
    def u(self) -> float:
        """a_f/a_0."""
        return float(self.a[1] / self.a[0])

    @cached_property
    def u_slope(self) -> float:
        """Derivative of u by beta."""
        return float((self.slope[1] - self.u * self.slope[0]) / self.a[0])


@lru_cache(maxsize=256)
def expand_characters(beta: float, n_colours: int) -> Characters:
    """Return the expansion, with all representations that are relevant in double precision.

    Args:
        beta: Coupling, of either sign.
        n_colours: N, 2 or 3.
    """
    largest = 12 + int(1.5 * abs(beta))
    parts = _list_representations(n_colours, largest)
    dimension = np.array([_count_dimension(np.array(part)) for part in parts])
    a = np.array([_compute_integral(part, beta / n_colours) for part in parts])
    slope = np.array([_compute_slope(part, beta / n_colours) for part in parts])
    return Characters(dimension, a / dimension, slope / dimension)


def compute_torus_log_z(beta: float, n_colours: int, n_plaquettes: int) -> float:
    """Return log Z of a two-dimensional torus: Z is the sum of a_r^n over r."""
    expansion = expand_characters(beta, n_colours)
    ratios = expansion.a / expansion.a[0]
    return float(n_plaquettes * np.log(expansion.a[0]) + np.log(np.sum(ratios**n_plaquettes)))


def compute_torus_plaquette(beta: float, n_colours: int, n_plaquettes: int) -> float:
    """Return P on a two-dimensional torus."""
    expansion = expand_characters(beta, n_colours)
    ratios, slopes = expansion.a / expansion.a[0], expansion.slope / expansion.a[0]
    weights = ratios ** (n_plaquettes - 1)
    return float(np.sum(weights * slopes) / np.sum(weights * ratios))


def _list_representations(n_colours: int, largest: int) -> list[tuple[int, ...]]:
    """Return partitions (l_1 >= ... >= l_N = 0), the trivial and the fundamental one first."""
    rows = product(range(largest), repeat=n_colours - 1)
    falling = [row for row in rows if list(row) == sorted(row, reverse=True)]
    return [(*row, 0) for row in sorted(falling, key=lambda row: (sum(row), row[::-1]))]


def _count_dimension(part: NDArray[np.int64]) -> float:
    """Return the dimension of a representation by Weyl's formula."""
    n = len(part)
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n)]
    return float(np.prod([(part[i] - part[j] + j - i) / (j - i) for i, j in pairs]))


@lru_cache(maxsize=65536)
def _compute_integral(part: tuple[int, ...], argument: float) -> float:
    """Return the integral of chi_r(U)^* exp(argument Re tr U): a sum of Toeplitz determinants."""
    n = len(part)
    rows, columns = np.arange(n)[:, None], np.arange(n)[None, :]
    # The sum over U(1) charges projects from U(N) to SU(N); Bessel functions limit it.
    reach = 20 + int(2 * abs(argument)) + max(part)
    charges = np.arange(-reach, reach + 1)[:, None, None]
    orders = np.array(part)[None, :] - columns + rows + charges
    return float(np.linalg.det(iv(orders, argument)).sum())


def _compute_slope(part: tuple[int, ...], argument: float) -> float:
    """Return the derivative of `_compute_integral` by beta = N argument.

    Re tr U chi_r is half the sum of the characters with one box more or one fewer.
    """
    total, n = 0.0, len(part)
    for i, step in product(range(n), (1, -1)):
        moved = [*part]
        moved[i] += step
        if all(upper >= lower for upper, lower in pairwise(moved)):
            total += _compute_integral(tuple(row - moved[-1] for row in moved), argument)
    return total / (2 * n)
