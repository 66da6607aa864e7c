"""The public function that shares one graph between parts."""

from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipeline_kernels.partition.coordinates import PlaneCoordinates
from pipeline_kernels.partition.graph_cut import cut_by_metis, cut_by_metis_volume, make_adjacency
from pipeline_kernels.partition.low_nn import cut_by_low_nn
from pipeline_kernels.partition.refine import refine
from pipeline_kernels.partition.rows import Rows
from pipeline_kernels.partition.search import MESSAGE, find_candidates, find_grids
from pipeline_kernels.partition.slices import cut_by_slices

Method = Literal["auto", "low_nn", "metis", "metis_volume", "grid", "slices"]


def partition(
    positions: ArrayLike,
    cell: ArrayLike,
    pbc: ArrayLike,
    edges: ArrayLike,
    n_parts: int,
    cutoff: float,
    method: Method = "auto",
    message: float = MESSAGE,
) -> NDArray[np.int64]:
    """Share the atoms of one large graph between parts, each of which owns its incoming edges.

    Deterministic, so that ranks which call it with the same graph agree without communication.
    Every part has an atom, except with METIS, which may leave some empty.

    Args:
        positions: `(n_atoms, 3)` Å, anywhere, not only within the cell.
        cell: Cell vectors as rows, `(3, 3)` Å, of any shape; rows that are not periodic may be
            zero.
        pbc: True for periodic directions, `(3,)`.
        edges: Receiver, which owns the edge, and sender, `(n_edges, 2)`, in any order. Edges to
            several images of an atom, and to its own, are fine; there may be none.
        n_parts: Number of parts, from 1 to the number of atoms.
        cutoff: Longest edge in Å.
        method: One of the table in the package's docstring.
        message: Nodes that could be sent in the latency of one message, for `grid` and `auto`.

    Returns:
        The part of each atom, `(n_atoms,)` int64, from 0 to `n_parts - 1`.

    Raises:
        ValueError: if arrays do not fit together, the method is unknown, or there are fewer atoms
            than parts.
    """
    atoms = PlaneCoordinates.of(positions, cell, pbc, cutoff)
    n_atoms = len(atoms.coordinates)
    if not 1 <= n_parts <= n_atoms:
        raise ValueError(
            f"n_parts: expected 1 to {n_atoms}, the number of atoms, got {n_parts}; "
            "use fewer parts or a larger structure"
        )
    if method not in get_args(Method):
        raise ValueError(f"method: expected one of {', '.join(get_args(Method))}, got {method!r}")
    return label_atoms(atoms, Rows.of(edges, n_atoms), n_parts, method, message)


def label_atoms(
    atoms: PlaneCoordinates,
    rows: Rows,
    n_parts: int,
    method: Method,
    message: float = MESSAGE,
    adjacency: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
) -> NDArray[np.int64]:
    """Share atoms as `partition` does, given the graph in the forms that the methods read.

    Args:
        atoms: Their coordinates.
        rows: Their graph.
        n_parts: Number of parts, at most one per atom.
        method: As for `partition`.
        message: As for `partition`.
        adjacency: The graph from `make_adjacency`; made for METIS if None.
    """
    if method == "slices":
        return cut_by_slices(atoms, n_parts)
    if method == "low_nn":
        return cut_by_low_nn(atoms, rows.weights, n_parts)
    if method == "grid":
        return find_grids(atoms, rows, n_parts, message)[0].labels
    if method == "metis":
        return cut_by_metis(adjacency or make_adjacency(rows), n_parts)
    if method == "metis_volume":
        return cut_by_metis_volume(adjacency or make_adjacency(rows), n_parts, rows.degrees)
    best = find_candidates(atoms, rows, n_parts, message)[0]
    return refine(best.labels, rows, n_parts, message)
