"""Source `hono`: points of an exact surface, on a grid or uniform in its domain."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pipeline_htfbr.data.datasets import HonoSource
from pipeline_htfbr.data.hono import HONO
from pipeline_htfbr.data.made import Made
from pipeline_htfbr.data.points import Coordinate, Points

Floats = NDArray[np.float64]


def draw_hono(source: HonoSource) -> Made:
    """Sample the surface of HONO."""
    surface, rng = HONO(), np.random.default_rng(source.seed)
    facts: dict[str, object] = {"reader": source.reader, "sampling": source.sampling}
    if source.sampling == "grid":
        x = draw_from_grid(surface.coordinates, source.counts, source.points, rng)
        facts["grid"] = source.counts
    else:
        lower, upper = list_bounds(surface.coordinates)
        x = rng.uniform(lower, upper, (source.points, len(lower)))
    points = Points(
        coordinates=surface.coordinates,
        x=x,
        energy=surface.energies(x),
        gradient=surface.gradients(x) if source.gradients else None,
        group=np.full(len(x), source.sampling, dtype=object),
        split=np.full(len(x), -1, dtype=np.int8),
        surface="hono",
        molecule=surface.molecule,
    )
    return Made(points=points, facts=facts)


def draw_from_grid(
    coordinates: Sequence[Coordinate], counts: Sequence[int], n: int, rng: np.random.Generator
) -> Floats:
    """Choose distinct points of a grid at random.

    Args:
        coordinates: Coordinates with domains; the grid includes the ends.
        counts: Points along each coordinate.
        n: Number of points, at most the size of the grid.
        rng: Random number generator.

    Returns:
        Points, (n, d).
    """
    return take_from_grid(coordinates, counts, rng.choice(int(np.prod(counts)), n, replace=False))


def take_from_grid(
    coordinates: Sequence[Coordinate], counts: Sequence[int], numbers: NDArray[np.int64]
) -> Floats:
    """Return points of a regular grid by their numbers, of which the last coordinate is fastest.

    Args:
        coordinates: Coordinates with domains; the grid includes the ends.
        counts: Points along each coordinate.
        numbers: Numbers of the points, (n,).

    Returns:
        Points, (n, d).
    """
    ends = zip(*list_bounds(coordinates), counts, strict=True)
    axes = [np.linspace(lower, upper, count) for lower, upper, count in ends]
    places = zip(axes, np.unravel_index(numbers, counts), strict=True)
    return np.stack([axis[place] for axis, place in places], axis=1)


def list_bounds(coordinates: Sequence[Coordinate]) -> tuple[list[float], list[float]]:
    """Return the lower and the upper bounds of coordinates with domains."""
    lower = [one.lower for one in coordinates if one.lower is not None]
    upper = [one.upper for one in coordinates if one.upper is not None]
    assert len(lower) == len(upper) == len(coordinates), "a coordinate without a domain"
    return lower, upper
