"""The graph of a structure whose atoms move little from one calculation to the next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from ase.geometry import wrap_positions
from numpy.typing import NDArray

from pipeline_atoms.config.graph import GraphOptions
from pipeline_atoms.edge_counts import require_sound
from pipeline_atoms.graphs import Arrays, Floats, Ints, assemble_graph, build_neighbour_graph

SKIN: Final = 0.5
"""Å by which the search reaches beyond the cutoff; an atom at 300 K takes some 0.1 ps for half."""


@dataclass(frozen=True)
class Candidates:
    """All pairs of atoms within the cutoff and the skin, and where the atoms then were.

    Attributes:
        positions: As given, (n_atoms, 3) Å.
        offsets: What moves each atom to its image within the cell, (n_atoms, 3) Å.
        cell: (3, 3) Å.
        pbc: (3,)
        index: (receiver, sender), (n_candidates, 2).
        shift: Cell of the sender, (n_candidates, 3).
    """

    positions: Floats
    offsets: Floats
    cell: Floats
    pbc: NDArray[np.bool_]
    index: Ints
    shift: Ints

    @classmethod
    def find(cls, positions: Floats, cell: Floats, pbc: NDArray[np.bool_], reach: float) -> Self:
        """Search all pairs within `reach`, Å.

        Raises:
            ValueError: As `build_neighbour_graph` does.
        """
        require_sound(positions, cell, pbc)
        # An atom that has drifted far would lose digits of its neighbour vectors in float32.
        places = wrap_positions(positions, cell, pbc)
        index, shift, _ = build_neighbour_graph(places, cell, pbc, reach)
        return cls(positions.copy(), places - positions, cell.copy(), pbc.copy(), index, shift)

    def hold(self, positions: Floats, cell: Floats, pbc: NDArray[np.bool_], skin: float) -> bool:
        """Return whether no other pair can be within the cutoff: no atom has crossed half a skin.

        A cell that has changed moves distant images without limit, so that nothing holds.
        """
        if len(positions) != len(self.positions):
            return False
        if not (np.array_equal(cell, self.cell) and np.array_equal(pbc, self.pbc)):
            return False
        with np.errstate(over="ignore"):  # of atoms that have been thrown out of the world
            moved = np.square(positions - self.positions).sum(axis=1)
        return bool((moved <= (skin / 2) ** 2).all())

    def measure(self, places: Floats) -> Floats:
        """Return the distances of all pairs, Å; both directions of a pair to the last bit alike."""
        receiver, sender = self.index.T
        vectors = places[sender] - places[receiver] + self.shift @ self.cell
        lengths: Floats = np.sqrt(np.square(vectors).sum(axis=1))
        return lengths


class MovingGraph:
    """Gives the graph of a structure as it moves, that of `graphs.build_graph`.

    Neighbours are searched when an atom has crossed half of the skin since the last time, or the
    cell has changed. Between, edges are those pairs found then that are within the cutoff now, and
    bonds and angles are listed anew when other pairs are.

    Args:
        options: Cutoffs of the graph.
    """

    def __init__(self, options: GraphOptions) -> None:
        self._options = options
        self._candidates: Candidates | None = None
        self._levels: NDArray[np.int8] | None = None
        self._graph: Arrays = {}

    def update(
        self, positions: Floats, cell: Floats, pbc: NDArray[np.bool_]
    ) -> tuple[Floats, Arrays]:
        """Return the graph of a structure, and positions that its shifts belong to.

        Args:
            positions: (n_atoms, 3) Å.
            cell: (3, 3) Å.
            pbc: (3,)

        Returns:
            Positions (n_atoms, 3) Å of images close to the cell, and the fields of the graph.

        Raises:
            ValueError: As `build_neighbour_graph` and `assemble_graph` do.
        """
        candidates, options = self._candidates, self._options
        if candidates is None or not candidates.hold(positions, cell, pbc, SKIN):
            candidates = Candidates.find(positions, cell, pbc, options.cutoff + SKIN)
            self._candidates, self._levels = candidates, None
        places = positions + candidates.offsets
        lengths = candidates.measure(places)
        near = lengths < options.cutoff
        # 0 for no edge, 2 for an edge that takes part in angles
        levels = near.astype(np.int8) + (lengths < (options.angle_cutoff or 0.0))
        if self._levels is None or not np.array_equal(levels, self._levels):
            self._graph = assemble_graph(
                candidates.index[near], candidates.shift[near], lengths[near], options
            )
            self._levels = levels
        return places, self._graph
