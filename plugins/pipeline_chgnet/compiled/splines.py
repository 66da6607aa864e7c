"""Splines of CHGNet's functions of bond lengths and angles."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from pipeline_kernels.hermite import (
    Jet,
    differentiate_interpolation,
    expand_jet,
    fit,
    interpolate,
)


class Splines(nn.Module):
    """Groups of functions of one variable, each linear in the same basis functions.

    Args:
        basis: Takes numbers (n,) and returns functions (n, functions), in double precision.
        maps: Linear map of each group, (functions, width).
        end: End of the interval, which begins at 0.

    Attributes:
        error: Largest measured error, relative to the largest number of a group.

    Raises:
        ValueError: The functions vary too fast.
    """

    table: Tensor

    def __init__(
        self, basis: Callable[[Tensor], Tensor], maps: Sequence[Tensor], end: float
    ) -> None:
        super().__init__()

        def expand(numbers: Tensor) -> list[Jet]:
            jet = expand_jet(basis, numbers)
            return [jet.apply(weight) for weight in maps]

        tables, n_intervals, self.error = fit(expand, end)
        self.widths, self.scale = [one.shape[1] for one in maps], n_intervals / end
        self.register_buffer("table", torch.cat(tables, dim=1))

    def forward(self, numbers: Tensor) -> list[Tensor]:
        """Evaluate each group, (n, width), at numbers (n,) in double precision."""
        return interpolate(numbers * self.scale, self.table, self.widths)

    def reverse(self, gradients: Sequence[Tensor], numbers: Tensor) -> Tensor:
        """Take derivatives by the groups back to the numbers, (n,)."""
        by_place = differentiate_interpolation(gradients, numbers * self.scale, self.table)
        return by_place * self.scale
