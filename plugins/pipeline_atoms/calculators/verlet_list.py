"""Verlet list: neighbours within a cutoff and a skin, kept while atoms move little."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import numpy as np
from ase.geometry import wrap_positions
from numpy.typing import NDArray

from pipeline_atoms.config.graph import GraphOptions
from pipeline_atoms.edge_counts import require_sound
from pipeline_atoms.graphs import Arrays, Floats, Ints, assemble_graph, build_neighbour_graph
from pipeline_atoms.neighbours import compute_lengths
from pipeline_atoms.structure import Structure

SKIN: Final = 0.5
"""Skin, Å: search range beyond the cutoff; an atom at 300 K takes some 0.1 ps for half of it."""

Graph = TypeVar("Graph")


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of atoms within the cutoff and the skin.

    Attributes:
        rows: Index in the structure of each local row, (n_rows,).
        index: Local rows of receiver and sender, (n_pairs, 2), sorted by receiver.
        shift: Cell of the sender, (n_pairs, 3).
    """

    rows: Ints
    index: Ints
    shift: Ints


class GraphBuilder(ABC, Generic[Graph]):
    """Builder of the graph of a structure, or of the part of it that a rank owns.

    Attributes:
        options: Cutoffs of the graph.
    """

    options: GraphOptions

    @abstractmethod
    def find_pairs(self, structure: Structure, reach: float) -> Pairs:
        """Search all pairs within `reach`, Å, of atoms wrapped into the cell.

        Raises:
            ValueError: As `graphs.build_neighbour_graph` does.
        """

    @abstractmethod
    def build(self, pairs: Pairs, positions: Floats, lengths: Floats) -> Graph:
        """Return the graph of the pairs of the last search that are now within the cutoff.

        Args:
            pairs: All pairs of the last search.
            positions: Positions of local rows, (n_rows, 3) Å.
            lengths: Lengths of all pairs, (n_pairs,) Å.
        """


class VerletList(Generic[Graph]):
    """Neighbour list of a moving structure, or of the part of it that one rank owns.

    Pairs within the cutoff and the skin are searched when an atom has moved by half of the skin
    since the last search, or atoms, cell or periodicity have changed. In between, the edges are the
    pairs that are within the cutoff, and the graph is built again only when this set changes.

    Args:
        builder: Searches the pairs, and builds the graph.

    Attributes:
        n_searches: Number of neighbour searches so far.
    """

    def __init__(self, builder: GraphBuilder[Graph]) -> None:
        self._builder = builder
        self.n_searches = 0
        self.forget()

    def forget(self) -> None:
        """Search at the next update, so that results do not depend on earlier structures."""
        self._last: tuple[Structure, Floats, Pairs] | None = None
        self._built: tuple[NDArray[np.int8], Graph] | None = None

    def needs_rebuild(self, structure: Structure) -> bool:
        """Return True if pairs that the last search has not found can be within the cutoff.

        A cell that has changed moves distant images without limit.
        """
        if self._last is None:
            return True
        last = self._last[0]
        for name in ("atomic_numbers", "cell", "pbc"):
            if not np.array_equal(getattr(structure, name), getattr(last, name)):
                return True
        with np.errstate(over="ignore"):  # for atoms that have flown apart
            moved = np.square(structure.positions - last.positions).sum(axis=1)
        return not bool((moved <= (SKIN / 2) ** 2).all())

    def update(self, structure: Structure) -> tuple[Floats, Graph]:
        """Return the graph of a structure, and the positions that its shifts refer to.

        Args:
            structure: All atoms; the same on all ranks, which call this together.

        Returns:
            Positions of local rows, (n_rows, 3) Å, in images close to the cell, and the graph,
            which is the same object as before while its edges and angles are the same.

        Raises:
            ValueError: As the builder does.
        """
        if self.needs_rebuild(structure):
            self._rebuild(structure)
        assert self._last is not None
        _, offsets, pairs = self._last
        positions = (structure.positions + offsets)[pairs.rows]
        lengths = compute_lengths(positions, structure.cell, pairs.index, pairs.shift)
        options = self._builder.options
        # 0 for no edge, 2 for an edge that takes part in angles
        levels = (lengths < options.cutoff).astype(np.int8)
        levels += lengths < (options.angle_cutoff or 0.0)
        if self._built is None or not np.array_equal(levels, self._built[0]):
            self._built = levels, self._builder.build(pairs, positions, lengths)
        return positions, self._built[1]

    def _rebuild(self, structure: Structure) -> None:
        self.forget()
        positions, cell = structure.positions.copy(), structure.cell.copy()
        numbers, pbc = structure.atomic_numbers.copy(), structure.pbc.copy()
        require_sound(positions, cell, pbc)
        # An atom that has drifted far would lose digits of its neighbour vectors in float32.
        wrapped = wrap_positions(positions, cell, pbc)
        reach = self._builder.options.cutoff + SKIN
        pairs = self._builder.find_pairs(Structure(numbers, wrapped, cell, pbc), reach)
        self._last = Structure(numbers, positions, cell, pbc), wrapped - positions, pairs
        self.n_searches += 1


class StructureGraphBuilder(GraphBuilder[Arrays]):
    """Builder of the graph of a whole structure, as `graphs.build_graph` does.

    Args:
        options: Cutoffs of the graph.
    """

    def __init__(self, options: GraphOptions) -> None:
        self.options = options

    def find_pairs(self, structure: Structure, reach: float) -> Pairs:
        """Search all pairs, see `GraphBuilder`."""
        place = structure.positions, structure.cell, structure.pbc
        index, shift, _ = build_neighbour_graph(*place, reach)
        return Pairs(np.arange(len(structure.positions)), index, shift)

    def build(self, pairs: Pairs, positions: Floats, lengths: Floats) -> Arrays:
        """Return the fields of `graphs.list_graph_fields`.

        Raises:
            ValueError: As `graphs.assemble_graph` does.
        """
        near = lengths < self.options.cutoff
        return assemble_graph(pairs.index[near], pairs.shift[near], lengths[near], self.options)
