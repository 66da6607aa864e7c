"""The choice between implementations. Autograd does not see either of them."""

from torch import Tensor

from pipeline_kernels.equivariant.edges import cpu, reference
from pipeline_kernels.equivariant.edges.reference import EdgeMeasures
from pipeline_kernels.native import prefer_c


def measure_edges(vectors: Tensor, lmax: int, scale: float, n_intervals: int) -> EdgeMeasures:
    """Measure edges for a network whose radial functions are splines.

    Args:
        vectors: from receiver to sender, `(n_edges, 3)`, float32 or float64, none of them zero.
        lmax: highest degree of the harmonics.
        scale: intervals between knots in a unit of length.
        n_intervals: all of them, from a distance of 0 on.

    Returns:
        Directions, distances, harmonics and places.
    """
    measure = prefer_c(vectors, cpu.measure, reference.measure)
    return measure(vectors, lmax, scale, n_intervals)


def differentiate_edges(
    edges: EdgeMeasures, by_harmonics: Tensor, by_x: Tensor, lmax: int, scale: float
) -> Tensor:
    """Take derivatives by harmonics and places back to the vectors.

    Args:
        edges: from `measure_edges`.
        by_harmonics: `(n_edges, (lmax + 1)²)`.
        by_x: derivatives by the place between knots, `(n_edges,)`.
        lmax: as there.
        scale: as there.

    Returns:
        Derivatives by the vectors, `(n_edges, 3)`.
    """
    differentiate = prefer_c(by_harmonics, cpu.differentiate, reference.differentiate)
    return differentiate(edges, by_harmonics, by_x, lmax, scale)
