"""What CHGNet makes of lengths and angles, as splines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import torch
from torch import Tensor, nn

from pipeline_kernels.hermite import Jet, differentiate_interpolation, expand_jet, interpolate

TOLERANCE: Final = 1e-8
"""Largest error of a spline, relative to the largest number of its group."""
_N_INTERVALS: Final = (64, 128, 256, 512, 1024, 2048)
_NEAREST: Final = 0.05
"""Knot intervals; radial functions divide by the length, and none is asked for at zero."""

Basis = Callable[[Tensor], Tensor]


class Splines(nn.Module):
    """Groups of functions of one number, each linear in the same basis functions.

    Args:
        basis: Takes numbers (n,) and returns functions (n, functions), in double precision.
        maps: Of each group, (functions, width).
        end: Of the numbers, which begin at 0.

    Attributes:
        error: The largest one, relative to the largest number of a group, as measured.

    Raises:
        ValueError: The functions vary too fast.
    """

    table: Tensor

    def __init__(self, basis: Basis, maps: Sequence[Tensor], end: float) -> None:
        super().__init__()
        self.widths = [weight.shape[1] for weight in maps]
        fit = _fit(basis, maps, end)
        self.register_buffer("table", fit.table)
        self.scale, self.error = fit.n_intervals / end, fit.error

    def forward(self, numbers: Tensor) -> list[Tensor]:
        """Evaluate each group, (n, width), at numbers (n,) in double precision."""
        return interpolate(numbers * self.scale, self.table, self.widths)

    def reverse(self, gradients: Sequence[Tensor], numbers: Tensor) -> Tensor:
        """Take derivatives by the groups back to the numbers, (n,)."""
        by_place = differentiate_interpolation(gradients, numbers * self.scale, self.table)
        return by_place * self.scale


class _Fit(NamedTuple):
    table: Tensor
    n_intervals: int
    error: float


def _fit(basis: Basis, maps: Sequence[Tensor], end: float) -> _Fit:
    """Tabulate with as many knots as `TOLERANCE` asks for."""
    for n_intervals in _N_INTERVALS:
        unit = end / n_intervals
        knots = torch.arange(n_intervals + 1, dtype=torch.float64).clamp(min=_NEAREST) * unit
        jet = expand_jet(basis, knots)
        table = torch.cat([jet.apply(weight).tabulate(unit) for weight in maps], dim=1)
        error = _measure_error(basis, maps, table, unit)
        if error <= TOLERANCE:
            return _Fit(table, n_intervals, error)
    raise ValueError(
        f"splines of {n_intervals} intervals miss the basis functions by {error:.1g} of the "
        f"largest, where {TOLERANCE:.0e} is asked for; use the model without infer.compile"
    )


def _measure_error(basis: Basis, maps: Sequence[Tensor], table: Tensor, unit: float) -> float:
    """Return the error in the middle of intervals, where it is largest; not in the first one."""
    middle = torch.arange(1, len(table) // len(Jet._fields) - 1, dtype=torch.float64) + 0.5
    functions = basis(middle * unit)
    groups = interpolate(middle, table, [weight.shape[1] for weight in maps])
    exact = [functions @ weight for weight in maps]
    pairs = zip(groups, exact, strict=True)
    return max(float((one - other).abs().max() / other.abs().max()) for one, other in pairs)
