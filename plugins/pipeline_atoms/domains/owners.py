"""Owner rank of each atom of a structure, chosen without the whole graph on any rank."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray

from pipeline_atoms.neighbours import find_edges
from pipeline_atoms.structure import Structure
from pipeline_core.config.sections import PartitionMethod
from pipeline_core.distributed.ranks import Ranks
from pipeline_kernels.partition import (
    MESSAGE,
    PlaneCoordinates,
    Rows,
    cut_by_low_nn,
    cut_by_slices,
    find_candidates,
    find_grids,
    partition,
)

Ints = NDArray[np.int64]


def choose_owners(
    structure: Structure,
    cutoff: float,
    ranks: Ranks,
    method: PartitionMethod = "auto",
    message: float = MESSAGE,
    n_parts: int | None = None,
) -> Ints:
    """Return the owner rank of each atom, the same on all ranks, which call this together.

    Each rank finds the edges of an equal number of atoms. Methods that cut by planes need no more:
    degrees of atoms are gathered, and the ranks count together the atoms that each part would
    receive; `slices` needs no edges at all. `auto` is then the best of these cuts, without the
    final refinement of `pipeline_kernels.partition.partition`, which reads the whole graph. METIS
    reads it in any case: with `metis` and `metis_volume` rank 0 holds the edges of the whole
    structure, and nothing else of it, while it chooses.

    Args:
        structure: All atoms.
        cutoff: Longest edge, Å.
        ranks: Ranks that choose together.
        method: Partitioning method, see `pipeline_kernels.partition`.
        message: Rows of an atom that could be sent in the latency of one message, by which `auto`
            and `grid` choose.
        n_parts: Number of owners, to plan for another number of ranks; the number of `ranks` if
            None.

    Returns:
        (n_atoms,)

    Raises:
        ValueError: There are more owners than atoms.
    """
    n_atoms, n_parts = len(structure.positions), n_parts or ranks.size
    if n_parts > n_atoms:
        raise ValueError(
            f"{n_atoms} atoms cannot be divided between {n_parts} ranks; start at most {n_atoms}"
        )
    if n_parts == 1:
        return np.zeros(n_atoms, dtype=np.int64)
    where = (structure.positions, structure.cell, structure.pbc)
    if method in ("metis", "metis_volume"):
        owners = None
        if ranks.is_rank_zero:
            edges, _ = find_edges(structure, cutoff, np.arange(n_atoms))
            owners = partition(*where, edges, n_parts, cutoff, method, message)
        chosen = ranks.broadcast(owners)
        assert chosen is not None
        return chosen
    planes = PlaneCoordinates.of(*where, cutoff)
    if method == "slices":
        return cut_by_slices(planes, n_parts)
    rows = DistributedRows.find(structure, cutoff, ranks)
    if method == "low_nn":
        return cut_by_low_nn(planes, rows.weights, n_parts)
    choose = find_grids if method == "grid" else find_candidates
    return choose(planes, rows, n_parts, message)[0].labels


@dataclass(frozen=True, eq=False)
class DistributedRows(Rows):
    """The rows of a graph, distributed over ranks by receivers.

    Attributes:
        ranks: Ranks that hold the rows.
        all_degrees: Number of edges of every node, (n_nodes,).
    """

    ranks: Ranks
    all_degrees: Ints

    @classmethod
    def find(cls, structure: Structure, cutoff: float, ranks: Ranks) -> Self:
        """Find the rows of this rank; all ranks call this together."""
        n_atoms = len(structure.positions)
        receivers = np.array_split(np.arange(n_atoms), ranks.size)[ranks.rank]
        rows = Rows.of(find_edges(structure, cutoff, receivers)[0], n_atoms)
        degrees = ranks.all_reduce_sum(torch.from_numpy(rows.degrees)).numpy()
        return cls(rows.offsets, rows.senders, ranks, degrees)

    @property
    def degrees(self) -> Ints:
        """Number of edges of every node, (n_nodes,)."""
        return self.all_degrees

    def touch(self, labels: Ints, n_parts: int) -> tuple[NDArray[np.uint64], int]:
        """Return `Rows.touch` of the whole graph; all ranks call this together."""
        bits, n_cut = super().touch(labels, n_parts)
        self.ranks.all_reduce_or(torch.from_numpy(bits.view(np.int64)))
        return bits, int(self.ranks.all_reduce_sum(torch.tensor(n_cut)))
