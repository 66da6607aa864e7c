"""Places of numbers between knots."""

from typing import Final, NamedTuple, Self

import torch
from torch import Tensor

N_ROWS: Final = 3
"""Rows of a knot: value, slope, curvature, all with the distance of knots as unit."""
_HERMITE: Final = torch.tensor(
    [
        [1, 0, 0, -10, 15, -6],
        [0, 1, 0, -6, 8, -3],
        [0, 0, 0.5, -1.5, 1.5, -0.5],
        [0, 0, 0, 10, -15, 6],
        [0, 0, 0, -4, 7, -3],
        [0, 0, 0, 0.5, -1, 0.5],
    ],
    dtype=torch.float64,
)
"""Coefficients of 1, t, ..., t^5 of each H."""


class Places(NamedTuple):
    """Places of numbers between the knots; shared by all splines with these knots.

    Attributes:
        first: first of six rows of a table, `(n,)` int64.
        factors: what these are multiplied with, `(n, 6)`.
        slopes: the same for the derivative, `(n, 6)`.
    """

    first: Tensor
    factors: Tensor
    slopes: Tensor

    @classmethod
    def of(cls, x: Tensor, n_intervals: int) -> Self:
        """Find places.

        Args:
            x: `(n,)`, from 0 to `n_intervals`; beyond it the outermost polynomial is continued.
            n_intervals: one less than there are knots.
        """
        interval = x.floor().clamp(0, n_intervals - 1)
        t = (x - interval)[:, None]
        powers = t ** torch.arange(6, device=x.device)
        value = _HERMITE.to(x)
        slope = value[:, 1:] * torch.arange(1, 6, device=x.device)
        return cls(N_ROWS * interval.long(), powers @ value.T, powers[:, :5] @ slope.T)

    def interpolate(self, table: Tensor) -> tuple[Tensor, Tensor]:
        """Return splines of this table (n_rows, size) and their derivatives, `(n, size)`."""
        rows = table[self.first[:, None] + torch.arange(2 * N_ROWS, device=table.device)]
        weighted = (torch.einsum("ek,eks->es", f, rows) for f in (self.factors, self.slopes))
        return next(weighted), next(weighted)
