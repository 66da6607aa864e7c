"""The edges in PyTorch, the oracle of the implementation in C."""

from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pipeline_kernels.equivariant.harmonics import compute_harmonic_slopes, solid_harmonics
from pipeline_kernels.hermite import Places


class EdgeMeasures(NamedTuple):
    """Features of edge vectors.

    Attributes:
        directions: from sender to receiver, `(n_edges, 3)`.
        distance: `(n_edges,)`, in the unit of the vectors.
        harmonics: of the directions, `(n_edges, (lmax + 1)²)`.
        places: of the distances between knots.
    """

    directions: Tensor
    distance: Tensor
    harmonics: Tensor
    places: Places


def measure(vectors: Tensor, lmax: int, scale: float, n_intervals: int) -> EdgeMeasures:
    """Calculate `op.measure_edges`."""
    distance = torch.linalg.vector_norm(vectors, dim=1)
    directions = vectors / -distance[:, None]
    # Those about z of (z, x, y) are those about y.
    harmonics = solid_harmonics(directions.roll(1, dims=1), lmax)
    return EdgeMeasures(directions, distance, harmonics, Places.of(distance * scale, n_intervals))


def differentiate(
    edges: EdgeMeasures, by_harmonics: Tensor, by_x: Tensor, lmax: int, scale: float
) -> Tensor:
    """Calculate `op.differentiate_edges`."""
    slopes = find_slopes(lmax).to(by_harmonics)
    rows = torch.einsum("em,kmn->ekn", by_harmonics, slopes)
    by_direction = torch.einsum("ekn,en->ek", rows, edges.harmonics)
    directions = edges.directions
    across = by_direction - (by_direction * directions).sum(1, keepdim=True) * directions
    along = (by_x * -scale)[:, None] * directions
    return along - across / edges.distance[:, None]


@cache
def find_slopes(lmax: int) -> Tensor:
    """Return D such that the derivative of the harmonics Y by u_k is D_k Y, (3, n, n) float64."""
    return torch.from_numpy(np.roll(compute_harmonic_slopes(lmax), -1, axis=0))
