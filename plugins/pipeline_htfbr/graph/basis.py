"""Basis functions of one coordinate: the leaves of the tree.

| family    | functions of s = 2 (x - a)/(b - a) - 1                         | count for degree N |
|-----------|----------------------------------------------------------------|--------------------|
| chebyshev | T_0 ... T_N, first kind                                        | N + 1              |
| legendre  | sqrt(2 m + 1) P_m, orthonormal in [-1, 1]                      | N + 1              |
| cosine    | 1, cos(2π x/p), ..., cos(2π N x/p)                             | N + 1              |
| fourier   | 1, cos(2π x/p), sin(2π x/p), ..., sin(2π N x/p)                | 2 N + 1            |

x is the coordinate, [a, b] its domain, p its period.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Family = Literal["chebyshev", "legendre", "cosine", "fourier"]


@dataclass(frozen=True, kw_only=True)
class Leaf:
    """The basis functions of one coordinate.

    Attributes:
        family: See the table above.
        degree: N.
        lower: a, in the unit of the coordinate.
        upper: b.
        period: p; None for a coordinate that is not periodic.
    """

    family: Family
    degree: int
    lower: float
    upper: float
    period: float | None = None

    @property
    def count(self) -> int:
        """Number of functions."""
        return 2 * self.degree + 1 if self.family == "fourier" else self.degree + 1

    @property
    def degrees(self) -> list[int]:
        """Degree of each function."""
        if self.family == "fourier":
            return [(i + 1) // 2 for i in range(self.count)]
        return list(range(self.count))

    def functions(self, x: Tensor) -> Tensor:
        """Evaluate all functions; differentiable any number of times.

        Args:
            x: Coordinate, (n,).

        Returns:
            (count, n).
        """
        if self.family in ("chebyshev", "legendre"):
            return self._compute_polynomials(2 * (x - self.lower) / (self.upper - self.lower) - 1)
        assert self.period is not None
        angle = x * (2 * torch.pi / self.period)
        rows = [torch.ones_like(x)]
        for m in range(1, self.degree + 1):
            rows.append(torch.cos(m * angle))
            if self.family == "fourier":
                rows.append(torch.sin(m * angle))
        return torch.stack(rows)

    def _compute_polynomials(self, s: Tensor) -> Tensor:
        rows = [torch.ones_like(s), s][: self.degree + 1]
        for m in range(1, self.degree):
            if self.family == "chebyshev":
                rows.append(2 * s * rows[-1] - rows[-2])
            else:
                rows.append(((2 * m + 1) * s * rows[-1] - m * rows[-2]) / (m + 1))
        if self.family == "legendre":
            rows = [row * (2 * m + 1) ** 0.5 for m, row in enumerate(rows)]
        return torch.stack(rows)


def compute_features(leaves: Sequence[Leaf], x: Tensor) -> Tensor:
    """Evaluate the functions of all leaves, as `pipeline_kernels.tree` takes them.

    Args:
        leaves: One per coordinate.
        x: Coordinates, (n, d).

    Returns:
        (n_features, n).
    """
    return torch.cat([leaf.functions(x[:, mu]) for mu, leaf in enumerate(leaves)])


def compute_slopes(leaves: Sequence[Leaf], x: Tensor) -> Tensor:
    """Differentiate the functions of all leaves, each by its coordinate.

    Args:
        leaves: One per coordinate.
        x: Coordinates, (n, d).

    Returns:
        (n_functions, n), per unit of the coordinate.
    """
    slopes = []
    for leaf, coordinate in zip(leaves, x.T, strict=True):
        variable = coordinate.clone().requires_grad_()
        for row in leaf.functions(variable):
            (slope,) = torch.autograd.grad(
                row.sum(), variable, retain_graph=True, materialize_grads=True
            )
            slopes.append(slope)
    return torch.stack(slopes)
