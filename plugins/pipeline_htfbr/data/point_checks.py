"""Validation of points before they are written."""

import numpy as np
from numpy.typing import NDArray

from pipeline_htfbr.data.made import Made


def require_sound(made: Made) -> None:
    """Check that all numbers are finite and all coordinates in their domains.

    Args:
        made: The points.

    Raises:
        ValueError: A point is invalid; the message gives the number of such points and the first.
    """
    points = made.points
    if not len(points.x):
        raise ValueError("source has no points; check the raw files")
    for values, coordinate in zip(points.x.T, points.coordinates, strict=True):
        _require_finite(made, f"coordinate {coordinate.name}", values)
    _require_finite(made, "the energy", points.energy)
    if points.gradient is not None:
        for values, coordinate in zip(points.gradient.T, points.coordinates, strict=True):
            _require_finite(made, f"the gradient by {coordinate.name}", values)
    _require_inside(made)


def _require_finite(made: Made, what: str, values: NDArray[np.float64]) -> None:
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        raise ValueError(
            f"{what} is {values[bad[0]]} at {len(bad)} of {len(values)} points, first "
            f"at {made.place(int(bad[0]))}; remove or correct them"
        )


def _require_inside(made: Made) -> None:
    for i, (values, one) in enumerate(zip(made.points.x.T, made.points.coordinates, strict=True)):
        lower = -np.inf if one.lower is None else one.lower
        upper = np.inf if one.upper is None else one.upper
        bad = np.flatnonzero((values < lower) | (values > upper))
        if len(bad):
            key = "lower" if values[bad[0]] < lower else "upper"
            raise ValueError(
                f"coordinate {one.name} is {values[bad[0]]:.10g} at {made.place(int(bad[0]))}, "
                f"outside its domain [{lower:.10g}, {upper:.10g}] {one.unit} ({len(bad)} of "
                f"{len(values)} points are); change source.coordinates.{i}.{key} if the point is "
                "right, or check the unit"
            )
