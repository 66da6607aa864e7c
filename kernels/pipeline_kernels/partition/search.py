"""Many partitions by planes, measured exactly, and the choice between them."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline_kernels.partition.coordinates import PlaneCoordinates
from pipeline_kernels.partition.low_nn import cut_by_grid, cut_by_low_nn
from pipeline_kernels.partition.metrics import PartitionMetrics
from pipeline_kernels.partition.rows import Rows

Numbers = NDArray[np.int64]
Shape = tuple[int, int, int]

N_EXACT = 12  # grids that are measured, the best by estimate

MESSAGE = 20e-6 * 20.4e9 / 1600
"""Nodes that could be sent in the latency of one message.

For nodes with 25 x 16 numbers of 4 bytes (lmax 4, 16 channels) between GPUs: the bandwidth that the
paper measures (section 5, 20.4 GB/s), and an assumed 20 µs to pack, post and unpack a message.
"""


def count_exchange(metrics: PartitionMetrics, message: float) -> float:
    """Return the cost of an exchange, in which all wait for the slowest part, in nodes sent."""
    return float((message * metrics.neighbours + metrics.received).max())


@dataclass(frozen=True, eq=False)
class Candidate:
    """A partition and its cost.

    Attributes:
        name: `low_nn`, or the shape of a grid such as `16x4x1`.
        labels: Part of each atom, `(n_atoms,)`.
        metrics: Its figures.
    """

    name: str
    labels: Numbers
    metrics: PartitionMetrics

    @property
    def objectives(self) -> tuple[float, float, float]:
        """Mean neighbours, most nodes received by a part, edge imbalance: less is better."""
        metrics = self.metrics
        return metrics.neighbours.mean(), metrics.received.max(), metrics.edge_imbalance


def list_shapes(n_parts: int) -> Iterator[Shape]:
    """Yield all `(p_x, p_y, p_z)` whose product is `n_parts`."""
    for x in _list_divisors(n_parts):
        for y in _list_divisors(n_parts // x):
            yield x, y, n_parts // x // y


def find_grids(
    atoms: PlaneCoordinates, rows: Rows, n_parts: int, message: float
) -> list[Candidate]:
    """Return the grids that promise the shortest exchange, measured, the shortest first.

    All factorizations are ranked by `estimate`, and the first twelve cut and measured.

    Args:
        atoms: The atoms.
        rows: The graph.
        n_parts: Number of parts, at most one per atom.
        message: Nodes that could be sent in the latency of one message.
    """
    ranked = sorted(
        list_shapes(n_parts), key=lambda shape: estimate(atoms, len(rows), shape, message)
    )
    candidates = []
    for shape in ranked[:N_EXACT]:
        labels = cut_by_grid(atoms, rows.weights, shape)
        name = "x".join(map(str, shape))
        candidates.append(Candidate(name, labels, rows.measure(labels, n_parts)))
    return sorted(candidates, key=lambda one: count_exchange(one.metrics, message))


def find_candidates(
    atoms: PlaneCoordinates, rows: Rows, n_parts: int, message: float
) -> list[Candidate]:
    """Return the Pareto set of the grids and `low_nn`, the shortest exchange first.

    Args:
        atoms: The atoms.
        rows: The graph.
        n_parts: Number of parts, at most one per atom.
        message: Nodes that could be sent in the latency of one message.
    """
    labels = cut_by_low_nn(atoms, rows.weights, n_parts)
    bisected = Candidate("low_nn", labels, rows.measure(labels, n_parts))
    best = find_pareto_set([*find_grids(atoms, rows, n_parts, message), bisected])
    return sorted(best, key=lambda one: count_exchange(one.metrics, message))


def find_pareto_set(candidates: list[Candidate]) -> list[Candidate]:
    """Return the candidates that none other equals or betters in every objective.

    Of candidates that are equal in all objectives the first is kept.
    """
    values = np.array([one.objectives for one in candidates])
    no_worse = (values[:, None] <= values).all(2)
    better = no_worse & (values[:, None] < values).any(2)
    earlier = np.triu(no_worse & no_worse.T, 1)
    return [candidates[number] for number in np.flatnonzero(~(better | earlier).any(0))]


def estimate(atoms: PlaneCoordinates, n_atoms: int, shape: Shape, message: float) -> float:
    """Return the cost of an exchange, in nodes per part, as if the atoms were spread evenly.

    Neighbours are the boxes within the cutoff of a box. Nodes received fill the shell around it,
    by Steiner's formula along the axes that it and its shell do not span whole.

    Args:
        atoms: The atoms.
        n_atoms: Their number.
        shape: Boxes along each axis.
        message: Nodes that could be sent in the latency of one message.
    """
    sizes = atoms.extent / shape
    neighbours = math.prod(
        _count_boxes_within(n, reach, bool(periodic))
        for n, reach, periodic in zip(shape, atoms.count_reach(sizes), atoms.periodic, strict=True)
    )
    extent = np.maximum(atoms.extent, 1e-3)
    whole = np.minimum(sizes + 2 * atoms.cutoff, extent) >= extent
    volume = np.prod(extent[whole]) * _compute_steiner_volume(sizes[~whole], atoms.cutoff)
    received = n_atoms * (volume / np.prod(extent) - 1 / math.prod(shape))
    return message * (neighbours - 1) + float(received)


def _count_boxes_within(n: int, reach: int, periodic: bool) -> float:
    """Return the mean number of boxes of a row that lie within reach of one, itself included."""
    if periodic:
        return min(n, 2 * reach + 1)
    places = np.arange(n)
    first, last = np.maximum(places - reach, 0), np.minimum(places + reach, n - 1)
    return float((last - first + 1).mean())


def _compute_steiner_volume(sizes: NDArray[np.float64], radius: float) -> float:
    """Return the volume within a radius of a box of one to three dimensions; 1 for none."""
    if len(sizes) == 3:
        x, y, z = map(float, sizes)
        faces, edges = 2 * (x * y + y * z + z * x), math.pi * (x + y + z)
        return x * y * z + faces * radius + edges * radius**2 + 4 / 3 * math.pi * radius**3
    if len(sizes) == 2:
        return float(sizes.prod() + 2 * sizes.sum() * radius + math.pi * radius**2)
    return float(sizes.sum() + 2 * radius) if len(sizes) else 1.0


def _list_divisors(number: int) -> list[int]:
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]
