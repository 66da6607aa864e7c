"""Edges of some of the atoms, so that each rank makes its own ones."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from pipeline_core.readers.cp2k_input import Structure

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_SLACK: Final = 1e-6
"""Å by which the search reaches beyond the cutoff, before distances are compared exactly."""
_RECEIVERS: Final = 512
"""Atoms whose neighbours are searched at a time."""


class Neighbours:
    """Finds edges (i, j, R) of receivers, as `pipeline_core.graphs.neighbour_graph` does of all.

    Ranks that search for different atoms agree on each edge and its opposite, also at the cutoff:
    a distance is that of a sum whose rounding does not depend on which end it starts from.

    Args:
        structure: All atoms; its positions within one cell.
        cutoff: Å
        receivers: Atoms whose edges may be asked for, (n,).
    """

    def __init__(self, structure: Structure, cutoff: float, receivers: Ints) -> None:
        self._structure, self._cutoff = structure, cutoff
        atoms, shifts, points = self._images(structure.positions[receivers])
        self._atoms, self._shifts, self._tree = atoms, shifts, cKDTree(points)

    def of(self, receivers: Ints) -> Iterator[tuple[Ints, Ints]]:
        """Yield edges for some receivers at a time, in their order.

        Args:
            receivers: Atoms, (n,) rising.

        Yields:
            edge_index (n_edges, 2) and edge_shift (n_edges, 3), sorted by receiver, sender, shift.
        """
        for begin in range(0, len(receivers), _RECEIVERS):
            yield self._found(receivers[begin : begin + _RECEIVERS])

    def _found(self, receivers: Ints) -> tuple[Ints, Ints]:
        own = cKDTree(self._structure.positions[receivers])
        reach = self._cutoff + _SLACK
        pairs = own.sparse_distance_matrix(self._tree, reach, output_type="ndarray")
        i, place = receivers[pairs["i"]], pairs["j"]
        j, shift = self._atoms[place], self._shifts[place]
        kept = self._is_edge(i, j, shift)
        i, j, shift = i[kept], j[kept], shift[kept]
        order = np.lexsort([shift[:, 2], shift[:, 1], shift[:, 0], j, i])
        return np.stack([i, j], axis=1)[order], shift[order]

    def _is_edge(self, i: Ints, j: Ints, shift: Ints) -> NDArray[np.bool_]:
        positions, cell = self._structure.positions, self._structure.cell
        # Each number is minus that of the opposite edge, to the last bit.
        vectors = positions[j] - positions[i]
        vectors += shift[:, :1] * cell[0] + shift[:, 1:2] * cell[1] + shift[:, 2:] * cell[2]
        near = np.square(vectors).sum(axis=1) <= self._cutoff**2
        found: NDArray[np.bool_] = near & ((i != j) | shift.any(axis=1))
        return found

    def _images(self, receivers: Floats) -> tuple[Ints, Ints, Floats]:
        """Return all images of atoms in the box of receivers and the cutoff around them."""
        structure, reach = self._structure, self._cutoff + _SLACK
        if not len(receivers):
            empty = np.zeros((0, 3))
            return np.zeros(0, dtype=np.int64), empty.astype(np.int64), empty
        low, high = receivers.min(axis=0) - reach, receivers.max(axis=0) + reach
        counts = np.zeros(3, dtype=int)
        if structure.pbc.any():
            heights = 1 / np.linalg.norm(np.linalg.inv(structure.cell), axis=0)
            counts[structure.pbc] = np.floor(reach / heights[structure.pbc]).astype(int) + 1
        found: list[tuple[Ints, Ints, Floats]] = []
        for image in product(*(range(-n, n + 1) for n in counts)):
            points = structure.positions + np.array(image) @ structure.cell
            inside = np.flatnonzero(((points >= low) & (points <= high)).all(axis=1))
            found.append((inside, np.tile(image, (len(inside), 1)), points[inside]))
        atoms, shifts, places = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return atoms, shifts.astype(np.int64), places
