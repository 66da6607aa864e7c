"""Neighbour search for some atoms of a structure, so that each rank finds only its own edges."""

from collections.abc import Iterator
from itertools import product
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pipeline_atoms.edge_counts import (
    EDGE_BYTES,
    estimate_neighbours,
    require_room,
    require_sound,
)
from pipeline_atoms.structure import Structure

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_SLACK: Final = 1e-6
"""Margin of the search beyond the cutoff, Å, before distances are compared exactly."""
_RECEIVERS: Final = 512
"""Number of atoms in one step of the search."""


class NeighbourSearch:
    """Search for edges (i, j, R) of some receivers, like `graphs.build_neighbour_graph` for all.

    Ranks that search for different atoms agree on each edge and its reverse, also at the cutoff:
    the rounding of a distance does not depend on the end from which it is calculated.

    Args:
        structure: All atoms, wrapped into the cell or not.
        cutoff: Longest edge, Å.
        receivers: Possible receivers, (n,).

    Raises:
        ValueError: As `graphs.build_neighbour_graph` does.
    """

    def __init__(self, structure: Structure, cutoff: float, receivers: Ints) -> None:
        from scipy.spatial import cKDTree

        self._structure, self._cutoff = structure, cutoff
        positions, cell, pbc = structure.positions, structure.cell, structure.pbc
        require_sound(positions, cell, pbc)
        n_rows = min(len(receivers), _RECEIVERS)
        each = estimate_neighbours(len(positions), cell, pbc, cutoff)
        require_room(n_rows * each, n_rows, f"edges within {cutoff:g} Å", EDGE_BYTES)
        self._cell = fill_cell(structure.cell, structure.pbc)
        fractions = structure.positions @ np.linalg.inv(self._cell)
        self._moved = np.where(structure.pbc, np.floor(fractions), 0).astype(np.int64)
        self._places = structure.positions - self._moved @ self._cell  # within one cell
        atoms, shifts, points = self._find_images(self._places[receivers])
        self._atoms, self._shifts, self._tree = atoms, shifts, cKDTree(points)

    def find_edges(self, receivers: Ints) -> Iterator[tuple[Ints, Ints]]:
        """Yield edges for some receivers at a time, in their order.

        Args:
            receivers: Atoms, (n,) ascending.

        Yields:
            edge_index (n_edges, 2) and edge_shift (n_edges, 3), sorted by receiver, sender, shift.
        """
        for begin in range(0, len(receivers), _RECEIVERS):
            yield self._find_some(receivers[begin : begin + _RECEIVERS])

    def _find_some(self, receivers: Ints) -> tuple[Ints, Ints]:
        from scipy.spatial import cKDTree

        own = cKDTree(self._places[receivers])
        reach = self._cutoff + _SLACK
        pairs = own.sparse_distance_matrix(self._tree, reach, output_type="ndarray")
        i, image = receivers[pairs["i"]], pairs["j"]
        j = self._atoms[image]
        shift = self._shifts[image] - self._moved[j] + self._moved[i]
        kept = self._is_edge(i, j, shift)
        i, j, shift = i[kept], j[kept], shift[kept]
        order = np.lexsort([shift[:, 2], shift[:, 1], shift[:, 0], j, i])
        return np.stack([i, j], axis=1)[order], shift[order]

    def _is_edge(self, i: Ints, j: Ints, shift: Ints) -> NDArray[np.bool_]:
        structure, index = self._structure, np.stack([i, j], axis=1)
        vectors = compute_vectors(structure.positions, structure.cell, index, shift)
        near = np.square(vectors).sum(axis=1) <= self._cutoff**2
        mask: NDArray[np.bool_] = near & ((i != j) | shift.any(axis=1))
        return mask

    def _find_images(self, receivers: Floats) -> tuple[Ints, Ints, Floats]:
        """Return all images of atoms in the bounding box of receivers, enlarged by the cutoff."""
        pbc, reach = self._structure.pbc, self._cutoff + _SLACK
        if not len(receivers):
            empty = np.zeros((0, 3))
            return np.zeros(0, dtype=np.int64), empty.astype(np.int64), empty
        low, high = receivers.min(axis=0) - reach, receivers.max(axis=0) + reach
        heights = 1 / np.linalg.norm(np.linalg.inv(self._cell), axis=0)
        counts = np.where(pbc, np.floor(reach / heights) + 1, 0).astype(int)
        images: list[tuple[Ints, Ints, Floats]] = []
        for image in product(*(range(-n, n + 1) for n in counts)):
            points = self._places + np.array(image) @ self._cell
            inside = np.flatnonzero(((points >= low) & (points <= high)).all(axis=1))
            images.append((inside, np.tile(image, (len(inside), 1)), points[inside]))
        atoms, shifts, places = (np.concatenate(columns) for columns in zip(*images, strict=True))
        return atoms, shifts.astype(np.int64), places


def find_edges(structure: Structure, cutoff: float, receivers: Ints) -> tuple[Ints, Ints]:
    """Find all edges of some receivers.

    Args:
        structure: All atoms.
        cutoff: Longest edge, Å.
        receivers: Atoms, (n,) ascending.

    Returns:
        edge_index (n_edges, 2) and edge_shift (n_edges, 3), sorted by receiver, sender, shift.
    """
    edges = [*NeighbourSearch(structure, cutoff, receivers).find_edges(receivers)]
    if not edges:
        return np.zeros((0, 2), dtype=np.int64), np.zeros((0, 3), dtype=np.int64)
    index, shift = (np.concatenate(columns) for columns in zip(*edges, strict=True))
    return index, shift


def compute_vectors(positions: Floats, cell: Floats, edge_index: Ints, edge_shift: Ints) -> Floats:
    """Compute the vector of each edge from receiver to sender, Å, (n_edges, 3).

    The vector of the reverse edge is its negative, to the last bit.
    """
    receiver, sender = edge_index.T
    vectors: Floats = positions[sender] - positions[receiver]
    shift = edge_shift
    vectors += shift[:, :1] * cell[0] + shift[:, 1:2] * cell[1] + shift[:, 2:] * cell[2]
    return vectors


def compute_lengths(positions: Floats, cell: Floats, edge_index: Ints, edge_shift: Ints) -> Floats:
    """Compute the length of each edge, Å, (n_edges,), equal to its reverse to the last bit."""
    vectors = compute_vectors(positions, cell, edge_index, edge_shift)
    lengths: Floats = np.sqrt(np.square(vectors).sum(axis=1))
    return lengths


def fill_cell(cell: Floats, pbc: NDArray[np.bool_]) -> Floats:
    """Replace the vectors of a cell that are not periodic by unit vectors normal to all others."""
    completed = np.array(cell, dtype=np.float64)
    completed[~pbc] = np.linalg.svd(completed[pbc])[2][np.count_nonzero(pbc) :]
    return completed
