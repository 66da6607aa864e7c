"""Tables with enough knots for an error bound."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import torch
from torch import Tensor

from pipeline_kernels.hermite.jets import Jet
from pipeline_kernels.hermite.places import Places

TOLERANCE: Final = 1e-8
"""Largest error of a spline, relative to the largest number of its group."""
_N_INTERVALS: Final = (64, 128, 256, 512, 1024, 2048)
_NEAREST: Final = 0.05
"""Knot intervals; radial functions divide by the distance, and none is evaluated at zero."""


class Fit(NamedTuple):
    """Functions from 0 to an end as splines.

    Attributes:
        tables: of each group, `(3 n_knots, width)` float64.
        n_intervals: between knots.
        error: the largest one, relative to the largest number of its group, as measured.
    """

    tables: list[Tensor]
    n_intervals: int
    error: float


def fit(functions: Callable[[Tensor], Sequence[Jet]], end: float) -> Fit:
    """Tabulate groups of functions, all with the same knots, as many as `TOLERANCE` requires.

    Args:
        functions: takes numbers `(n,)` float64 and returns a jet for each group.
        end: of the numbers, which begin at 0.

    Raises:
        ValueError: The functions vary too fast.
    """
    for n_intervals in _N_INTERVALS:
        unit = end / n_intervals
        knots = torch.arange(n_intervals + 1, dtype=torch.float64).clamp(min=_NEAREST) * unit
        tables = [jet.tabulate(unit) for jet in functions(knots)]
        error = _measure_error(functions, tables, unit)
        if error <= TOLERANCE:
            return Fit(tables, n_intervals, error)
    raise ValueError(
        f"splines of {n_intervals} intervals miss what the network makes of distances or angles by "
        f"{error:.1g} of the largest, more than {TOLERANCE:.0e}; use the model without "
        "infer.compile"
    )


def _measure_error(
    functions: Callable[[Tensor], Sequence[Jet]], tables: Sequence[Tensor], unit: float
) -> float:
    """Return the error in the middle of intervals, where it is largest; not in the first one."""
    n_intervals = len(tables[0]) // len(Jet._fields) - 1
    middle = torch.arange(1, n_intervals, dtype=torch.float64) + 0.5
    places = Places.of(middle, n_intervals)
    errors = []
    for table, jet in zip(tables, functions(middle * unit), strict=True):
        values, _ = places.interpolate(table)
        errors.append(float((values - jet.values).abs().max() / jet.values.abs().max()))
    return max(errors)
