"""Orthonormal change of basis from blocks of orbital pairs to irreducible representations.

The product of shells of degrees a and b contains each degree L from |a - b| to a + b once:

    y_LM = √(2L+1) Σ w(a, b, L)[m, m', M] H[m, m'],   H[m, m'] = Σ √(2L+1) w(a, b, L)[m, m', M] y_LM

with the 3j symbols w of e3nn. With the factor √(2L+1) both ways the change is orthogonal: squared
errors of y and of H are equal, so no degree weighs more than another in a loss.
"""

from collections.abc import Sequence
from itertools import product
from math import sqrt

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline_egnn_esp.options import HIGHEST_DEGREE
from pipeline_kernels.equivariant.clebsch_gordan import clebsch_gordan


class Coupling:
    """Change of basis between blocks in the common layout and their coupled components.

    The coupled components are ordered by shell of the row, shell of the column, degree L, order M.

    Args:
        shells: Degree of each shell of the common layout, `Basis.common`.

    Attributes:
        irreps: Degree L of each irreducible representation, in order.
        unnatural: True for each irrep whose parity, (-1)^(a + b), differs from (-1)^L.
        n_common: Rows and columns of a block.
        n_coupled: Coupled components of a block, as many as it has entries.
    """

    def __init__(self, shells: Sequence[int]) -> None:
        self.shells = tuple(shells)
        irreps = [
            (degree, (a + b + degree) % 2 == 1)
            for a, b in product(shells, repeat=2)
            for degree in range(abs(a - b), a + b + 1)
        ]
        self.irreps = [degree for degree, _ in irreps]
        self.unnatural = [unnatural for _, unnatural in irreps]
        self.n_common = sum(2 * degree + 1 for degree in shells)
        self.n_coupled = self.n_common**2

    @property
    def lmax(self) -> int:
        """Highest degree that occurs."""
        return max(self.irreps)

    def require(self, lmax: int) -> None:
        """Check that features up to a degree suffice.

        Raises:
            ValueError: The blocks contain higher degrees.
        """
        if lmax < self.lmax:
            cure = f"set model.lmax to at least {self.lmax}"
            if self.lmax > HIGHEST_DEGREE:
                cure = f"the network goes up to {HIGHEST_DEGREE}: take a basis set without them"
            raise ValueError(
                f"model.lmax is {lmax}, but products of the shells of this basis contain degrees "
                f"up to {self.lmax}, twice the highest of the orbitals; {cure}"
            )

    def find_rows(self, degree: int) -> Tensor:
        """Return the places of the components of all irreps of a degree L, (n_irreps, 2L+1)."""
        begins = np.cumsum([0, *(2 * other + 1 for other in self.irreps)])[:-1]
        chosen = begins[np.array(self.irreps) == degree]
        return torch.from_numpy(chosen[:, None] + np.arange(2 * degree + 1))

    def find_unnatural(self, degree: int) -> Tensor:
        """Return the mask of the unnatural irreps of a degree, (n_irreps,)."""
        return torch.tensor(self.unnatural)[torch.tensor(self.irreps) == degree]

    def make_blocks(self) -> Tensor:
        """Return the block of each coupled component, (n_coupled, n_common, n_common)."""
        blocks = np.zeros((self.n_coupled, self.n_common, self.n_common))
        ends = np.cumsum([2 * degree + 1 for degree in self.shells])
        begin = 0
        for (a, i), (b, j) in product(zip(self.shells, ends, strict=True), repeat=2):
            change = compute_change_of_basis(a, b).T.reshape(-1, 2 * a + 1, 2 * b + 1)
            end = begin + len(change)
            blocks[begin:end, i - 2 * a - 1 : i, j - 2 * b - 1 : j] = change
            begin = end
        return torch.from_numpy(blocks)


def compute_change_of_basis(a: int, b: int) -> NDArray[np.float64]:
    """Return the orthogonal matrix from products of two degrees to their irreps.

    Args:
        a: Degree of the first factor.
        b: Degree of the second factor.

    Returns:
        Rows are pairs (m, m'), columns (L, M) by ascending L: (d, d) with d = (2a+1)(2b+1).
    """
    columns = [
        sqrt(2 * degree + 1) * clebsch_gordan(a, b, degree).reshape(-1, 2 * degree + 1)
        for degree in range(abs(a - b), a + b + 1)
    ]
    return np.concatenate(columns, axis=1)
