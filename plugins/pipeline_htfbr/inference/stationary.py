"""Minima and first-order saddle points of a surface, and pairing of those of two surfaces.

All searches run at once. Each follows the eigenvectors of the Hessian (C. J. Cerjan and W. H.
Miller, J. Chem. Phys. 75, 2800 (1981)): downhill along all of them to a minimum, uphill along the
lowest to a saddle point, with the length of Newton's step up to a trust radius.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from pipeline_htfbr.inference.domain import SurfaceBox
from pipeline_htfbr.inference.landscape import Landscape

Floats = NDArray[np.float64]

_ITERATIONS = 100
_TRUST = 0.05
"""Trust radius, relative to the domain."""
_CONVERGED = 1e-5
"""Longest Newton step at a converged stationary point, relative to the domain."""
_SAME = 1e-4
"""Distance below which two results are the same point, relative to the domain."""
_MATCH = 0.15
"""Distance above which points of two surfaces do not correspond."""
_PATH_POINTS = 9
_UPHILL = (0.03, 0.15)
"""Steps from a minimum along its eigenvectors at which searches for saddle points begin."""


@dataclass(frozen=True)
class StationaryPoint:
    """Minimum or saddle point.

    Attributes:
        order: Number of directions downhill: 0 for a minimum, 1 for a saddle point.
        x: (d,).
        energy: eV.
        hessian: (d, d) eV per units of the coordinates.
    """

    order: int
    x: Floats
    energy: float
    hessian: Floats


def find_stationary_points(
    landscape: Landscape, domain: SurfaceBox, starts: Floats
) -> list[StationaryPoint]:
    """Search minima and first-order saddle points inside a domain.

    Saddle points are searched from the starts, from the straight lines between minima and uphill
    from them. The search may miss some.

    Args:
        landscape: The surface.
        domain: Domain of the search.
        starts: Starting points, (n, d).

    Returns:
        Minima, then saddle points, each in the order of their energies.
    """
    minima = find_minima(landscape, domain, starts)
    between = [starts, *_find_passes(minima, domain, landscape), *_step_uphill(minima, domain)]
    return minima + _search(landscape, domain, np.concatenate(between), order=1)


def find_minima(landscape: Landscape, domain: SurfaceBox, starts: Floats) -> list[StationaryPoint]:
    """Search minima alone, as in `find_stationary_points`."""
    return _search(landscape, domain, starts, order=0)


def choose_starts(x: Floats, energies: Floats, domain: SurfaceBox, count: int = 16) -> Floats:
    """Return points of low energy that lie far from each other, (count, d) or fewer."""
    lowest = x[np.argsort(energies, kind="stable")[: max(10 * count, len(x) // 20)]]
    chosen = [0]
    distance = domain.measure_distances(lowest, lowest[0])
    while len(chosen) < min(count, len(lowest)):
        chosen.append(int(np.argmax(distance)))
        distance = np.minimum(distance, domain.measure_distances(lowest, lowest[chosen[-1]]))
    return domain.fold(lowest[chosen])


def pair_points(
    fitted: Sequence[StationaryPoint], exact: Sequence[StationaryPoint], domain: SurfaceBox
) -> list[tuple[int, int]]:
    """Pair corresponding points of two surfaces: of the same order, nearest ones first."""
    distances = {
        (i, j): float(domain.measure_distances(a.x, b.x))
        for i, a in enumerate(fitted)
        for j, b in enumerate(exact)
        if a.order == b.order
    }
    matched: list[tuple[int, int]] = []
    for i, j in sorted(distances, key=lambda pair: distances[pair]):
        if distances[i, j] < _MATCH and not any(i == a or j == b for a, b in matched):
            matched.append((i, j))
    return sorted(matched, key=lambda pair: pair[1])


def _search(
    landscape: Landscape, domain: SurfaceBox, starts: Floats, order: int
) -> list[StationaryPoint]:
    x = _follow(landscape, domain, starts, order)
    slopes, hessians = _scale_derivatives(landscape, domain, x)
    usable = np.isfinite(slopes).all(1) & np.isfinite(hessians).all((1, 2))
    x, slopes, hessians = x[usable], slopes[usable], hessians[usable]
    good = np.abs(_compute_steps(slopes, hessians, order)).max(1, initial=0) < _CONVERGED
    good &= (np.linalg.eigvalsh(hessians) < 0).sum(1) == order
    x, hessians = x[good], hessians[good] / np.outer(domain.length, domain.length)
    energies = landscape.energies(x)
    kept: list[int] = []
    for i in np.argsort(energies, kind="stable"):
        if all(domain.measure_distances(x[i], x[k]) > _SAME for k in kept):
            kept.append(int(i))
    return [StationaryPoint(order, x[i], float(energies[i]), hessians[i]) for i in kept]


def _follow(landscape: Landscape, domain: SurfaceBox, x: Floats, order: int) -> Floats:
    """Follow eigenvectors from points (n, d) until they converge or steps run out, (n, d).

    A search may also end at an edge of the domain.
    """
    x = domain.fold(x)
    moving = np.arange(len(x))
    for _ in range(_ITERATIONS):
        slopes, hessians = _scale_derivatives(landscape, domain, x[moving])
        usable = np.isfinite(slopes).all(1) & np.isfinite(hessians).all((1, 2))
        moving, before = moving[usable], x[moving[usable]]
        if not len(moving):
            break
        steps = _compute_steps(slopes[usable], hessians[usable], order)
        x[moving] = domain.fold(before + domain.length * steps)
        moving = moving[domain.measure_distances(x[moving], before) > _CONVERGED]
    return x


def _compute_steps(slopes: Floats, hessians: Floats, order: int) -> Floats:
    """Return steps relative to the domain, (n, d)."""
    values, vectors = np.linalg.eigh(hessians)
    along = np.einsum("nij,ni->nj", vectors, slopes)
    largest = np.abs(values).max(1, keepdims=True, initial=0)
    step = -along / np.maximum(np.abs(values), 1e-6 * largest + 1e-12)
    step[:, :order] *= -1
    moved: Floats = np.einsum("nij,nj->ni", vectors, step)
    longest = np.abs(moved).max(1, keepdims=True, initial=0)
    steps: Floats = moved * (_TRUST / np.maximum(longest, _TRUST))
    return steps


def _scale_derivatives(
    landscape: Landscape, domain: SurfaceBox, x: Floats
) -> tuple[Floats, Floats]:
    """Return gradients and Hessians by coordinates relative to the domain, eV.

    Components that vanish by symmetry on a mirror plane are set to zero there.
    """
    slopes = landscape.gradients(x) * domain.length
    hessians = landscape.hessians(x) * np.outer(domain.length, domain.length)
    across = domain.is_on_mirror(x)
    mixed = across[:, :, None] != across[:, None, :]
    return np.where(across, 0, slopes), np.where(mixed, 0, hessians)


def _find_passes(
    minima: Sequence[StationaryPoint], domain: SurfaceBox, landscape: Landscape
) -> list[Floats]:
    """Return the highest point of the straight line between each two minima, (1, d) each."""
    passes = []
    for a, b in combinations(minima, 2):
        parts = np.linspace(0, 1, _PATH_POINTS + 2)[1:-1, None]
        line = domain.fold(a.x + parts * domain.compute_difference(a.x, b.x))
        passes.append(line[[int(np.argmax(landscape.energies(line)))]])
    return passes


def _step_uphill(minima: Sequence[StationaryPoint], domain: SurfaceBox) -> list[Floats]:
    """Return points displaced from minima along the two softest eigenvectors."""
    starts = []
    for minimum in minima:
        _, vectors = np.linalg.eigh(minimum.hessian * np.outer(domain.length, domain.length))
        lengths = np.array([s * u for u in _UPHILL for s in (1, -1)])
        steps = np.concatenate([lengths[:, None] * soft for soft in vectors.T[:2]])
        starts.append(domain.fold(minimum.x + domain.length * steps))
    return starts
