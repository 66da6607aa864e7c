"""Regions: own atoms of a structure with all atoms that their energies and forces depend on.

They are for models that do not support domains. With n layers of message passing the energy of an
atom depends on atoms up to n edges away, and the force on it on the energies of all these atoms:
on atoms up to 2 n edges away. A rank that has all of them calculates the forces on its own atoms,
and its part of energy and virial, exactly and without communication.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pipeline_atoms.neighbours import find_edges
from pipeline_atoms.structure import Structure
from pipeline_core.batch import Batch, collate

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Region:
    """Atoms and edges of one rank.

    Attributes:
        structure: All atoms.
        rows: Index in the structure of each local row, own atoms first, (n_local,).
        n_own: Number of own atoms.
        edge_index: Local rows of receiver and sender, (n_edges, 2), sorted by receiver.
        edge_shift: (n_edges, 3)
    """

    structure: Structure
    rows: Ints
    n_own: int
    edge_index: Ints
    edge_shift: Ints

    def make_inputs(self) -> dict[str, NDArray[Any]]:
        """Return all atoms and edges, and the cell, as fields of a sample."""
        return {**self._take(slice(None), slice(None)), "edge_index": self.edge_index}

    def split_inputs(self) -> list[dict[str, NDArray[Any]]]:
        """Return own atoms with their edges, and all other atoms with theirs, as two samples.

        Edges connect the two: `edge_index`, which counts rows over both, is left out.
        """
        own = np.searchsorted(self.edge_index[:, 0], self.n_own)
        return [
            self._take(slice(self.n_own), slice(own)),
            self._take(slice(self.n_own, None), slice(own, None)),
        ]

    def _take(self, atoms: slice, edges: slice) -> dict[str, NDArray[Any]]:
        inputs = self.structure.select(self.rows[atoms])
        return inputs | {"edge_shift": self.edge_shift[edges]}


def build_region(structure: Structure, cutoff: float, own: Ints, n_hops: int) -> Region:
    """Build the region around own atoms: all atoms within `n_hops` edges, and the edges.

    Args:
        structure: All atoms.
        cutoff: Longest edge, Å.
        own: Own atoms, (n_own,) ascending.
        n_hops: Largest distance from own atoms in edges; at least 1.
    """
    is_included = np.zeros(len(structure.positions), dtype=bool)
    is_included[own] = True
    shells, edges = [own], []
    for _ in range(n_hops):
        edges.append(find_edges(structure, cutoff, shells[-1]))
        senders = np.unique(edges[-1][0][:, 1])
        shells.append(senders[~is_included[senders]])
        is_included[shells[-1]] = True
    rows = np.concatenate([own, np.sort(np.concatenate(shells[1:]))])
    local = np.empty(len(is_included), dtype=np.int64)
    local[rows] = np.arange(len(rows))
    index, shift = (np.concatenate(columns) for columns in zip(*edges, strict=True))
    order = np.argsort(local[index[:, 0]], kind="stable")
    return Region(structure, rows, len(own), local[index][order], shift[order])


def collate_region(region: Region, dtype: torch.dtype) -> Batch:
    """Collate a region into a batch of two samples, see `split_inputs`."""
    inputs = collate(region.split_inputs(), dtype)
    return inputs | {"edge_index": torch.from_numpy(region.edge_index)}
