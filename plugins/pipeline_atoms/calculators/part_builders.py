"""Graph builders for domain decomposition: a `VerletList` of the part of a rank."""

from abc import abstractmethod
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray

from pipeline_atoms.calculators.verlet_list import GraphBuilder, Pairs
from pipeline_atoms.config.graph import GraphOptions
from pipeline_atoms.domain import Domain
from pipeline_atoms.domains.construction import add_bonds, build_domain, select_edges
from pipeline_atoms.domains.owners import choose_owners
from pipeline_atoms.domains.regions import build_region, collate_region
from pipeline_atoms.domains.transports import choose_transport
from pipeline_atoms.structure import Structure
from pipeline_core.batch import Batch, move_to_device
from pipeline_core.config.sections import PartitionMethod
from pipeline_core.distributed.ranks import Ranks

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(eq=False)
class PartBuilder(GraphBuilder[tuple[Batch, Domain | None]]):
    """Builder of the inputs of a rank: its own atoms and all that their results depend on.

    Later updates do not change a batch that was returned.

    Owners are chosen at each neighbour search, when atoms may migrate to other ranks.

    Attributes:
        options: Cutoffs of the graph.
        ranks: Ranks that share the structure; all create this object, and search, together.
        dtype: Type of the inputs.
        method: Partitioning method of the atoms.
        n_migrated: Number of changes of owner so far, over all atoms.
    """

    options: GraphOptions
    ranks: Ranks
    dtype: torch.dtype
    method: PartitionMethod = "auto"
    n_migrated: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._transport = choose_transport(self.ranks)
        self._owners: Ints | None = None

    @property
    def own(self) -> Ints:
        """Indices of own atoms in the structure, ascending, (n_own,)."""
        assert self._owners is not None, "no structure has been seen"
        return np.flatnonzero(self._owners == self.ranks.rank)

    def find_pairs(self, structure: Structure, reach: float) -> Pairs:
        """Choose owners, and search the pairs of this rank.

        Raises:
            ValueError: There are more ranks than atoms, or as `NeighbourSearch` does.
        """
        owners = choose_owners(structure, reach, self.ranks, self.method)
        if self._owners is not None and len(self._owners) == len(owners):
            self.n_migrated += int(np.count_nonzero(owners != self._owners))
        self._owners = owners
        return self._find_part(structure, reach, owners)

    @abstractmethod
    def _find_part(self, structure: Structure, reach: float, owners: Ints) -> Pairs:
        """Search pairs within `reach`, Å."""


class DomainBuilder(PartBuilder):
    """Builder of domains, for models that support them."""

    def _find_part(self, structure: Structure, reach: float, owners: Ints) -> Pairs:
        self._domain = domain = build_domain(structure, reach, owners, self._transport)
        return Pairs(domain.rows, domain.edge_index.numpy(), domain.edge_shift.numpy())

    def build(self, pairs: Pairs, positions: Floats, lengths: Floats) -> tuple[Batch, Domain]:
        """Return the batch of a domain, and the domain, with bonds if there are angles."""
        domain = select_edges(self._domain, lengths < self.options.cutoff)
        if self.options.angle_cutoff is not None:
            domain = add_bonds(domain, self.options.angle_cutoff, positions)
        batch = move_to_device(domain.make_batch(positions, self.dtype), self.ranks.device)
        return batch, domain.to(self.ranks.device)


@dataclass(eq=False)
class RegionBuilder(PartBuilder):
    """Builder of regions, for models that do not support domains.

    Attributes:
        n_hops: Distance in edges up to which atoms influence own forces.
    """

    n_hops: int = field(kw_only=True)

    def _find_part(self, structure: Structure, reach: float, owners: Ints) -> Pairs:
        self._region = region = build_region(structure, reach, self.own, self.n_hops)
        return Pairs(region.rows, region.edge_index, region.edge_shift)

    def build(self, pairs: Pairs, positions: Floats, lengths: Floats) -> tuple[Batch, None]:
        """Return the batch of a region, and no domain."""
        near = lengths < self.options.cutoff
        region = replace(self._region, edge_index=pairs.index[near], edge_shift=pairs.shift[near])
        batch = move_to_device(collate_region(region, self.dtype), self.ranks.device)
        return batch | {"positions": torch.from_numpy(positions).to(batch["positions"])}, None
