"""The part of a structure that a rank owns, as the structure moves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from ase.geometry import wrap_positions
from numpy.typing import NDArray

from pipeline_atoms.calculators.moving_graph import SKIN
from pipeline_atoms.config.graph import GraphOptions
from pipeline_atoms.domain import Domain
from pipeline_atoms.domains.construction import add_bonds, build_domain, select_edges
from pipeline_atoms.domains.owners import choose_owners
from pipeline_atoms.domains.regions import Region, build_region, collate_region
from pipeline_atoms.neighbours import compute_lengths
from pipeline_atoms.structure import Structure
from pipeline_core.batch import Batch, move_to_device
from pipeline_core.config.sections import PartitionMethod
from pipeline_core.distributed.ranks import Ranks
from pipeline_core.distributed.transports import choose_transport
from pipeline_kernels.partition import Link

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Part = TypeVar("Part", Domain, Region)


class MovingPart:
    """Gives the inputs of a rank for each position of the atoms.

    Owners are chosen, and neighbours of own atoms searched, when an atom has crossed half of the
    skin since the last time, or the cell has changed: then atoms may migrate to other ranks.
    Between, edges are those pairs found then that are within the cutoff now. A rank knows no more
    edges than those that its results depend on.

    Args:
        graph: Cutoffs.
        n_hops: How many edges away atoms have an influence on own forces, of a model that knows
            nothing of domains; None for one that takes them.
        ranks: Who shares the structure; all of them call `update` together.
        dtype: Type of the inputs.
        method: How atoms are divided.
        link: What an exchange takes, by which `auto` chooses.

    Attributes:
        n_searches: How often neighbours have been searched.
        n_migrated: Atoms that have changed their owner, counted each time.
    """

    def __init__(
        self,
        graph: GraphOptions,
        n_hops: int | None,
        ranks: Ranks,
        dtype: torch.dtype,
        method: PartitionMethod = "auto",
        link: Link | None = None,
    ) -> None:
        self._graph, self._n_hops, self._ranks, self._dtype = graph, n_hops, ranks, dtype
        self._method, self._link, self._transport = method, link, choose_transport(ranks)
        self.n_searches = self.n_migrated = 0
        self._owners: Ints | None = None
        self._search: _Search[Any] | None = None

    @property
    def own(self) -> Ints:
        """Numbers of own atoms in the structure, rising, (n_own,)."""
        assert self._owners is not None, "no structure has been seen"
        return np.flatnonzero(self._owners == self._ranks.rank)

    def forget(self) -> None:
        """Search anew at the next update, so that what follows depends on no position before."""
        self._search = None

    def update(self, structure: Structure) -> tuple[Batch, Domain | None]:
        """Return what a model is given.

        Tensors but the positions are the very same as before while the edges are.

        Args:
            structure: All atoms, the same ones as before, alike on all ranks.

        Raises:
            ValueError: There are more ranks than atoms, or as `NeighbourSearch` does.
        """
        if self._search is None or not self._search.holds(structure):
            self._search = self._start(structure)
        return self._search.move(structure.positions)

    def _start(self, structure: Structure) -> _Search[Any]:
        reach = self._graph.cutoff + SKIN
        # Atoms that have drifted far would lose digits of their vectors in single precision.
        places = wrap_positions(structure.positions, structure.cell, structure.pbc)
        wrapped = Structure(structure.atomic_numbers, places, structure.cell, structure.pbc)
        owners = choose_owners(wrapped, reach, self._ranks, self._method, self._link)
        if self._owners is not None and len(self._owners) == len(owners):
            self.n_migrated += int(np.count_nonzero(owners != self._owners))
        self._owners, self.n_searches = owners, self.n_searches + 1
        facts = structure, wrapped, self._graph, self._dtype, self._ranks.device
        if self._n_hops is None:
            return _DomainSearch(*facts, build_domain(wrapped, reach, owners, self._transport))
        return _RegionSearch(*facts, build_region(wrapped, reach, self.own, self._n_hops))


class _Search(ABC, Generic[Part]):
    """Neighbours within cutoff and skin, and what is made of them while atoms move little.

    Args:
        structure: Then.
        wrapped: The same with all atoms within the cell.
        graph: Cutoffs.
        dtype: Type of the inputs.
        device: Where inputs lie.
        part: What was found: atoms and edges within cutoff and skin.
    """

    def __init__(
        self,
        structure: Structure,
        wrapped: Structure,
        graph: GraphOptions,
        dtype: torch.dtype,
        device: torch.device,
        part: Part,
    ) -> None:
        self._then, self._graph, self._dtype, self._device = structure, graph, dtype, device
        self._offsets = wrapped.positions - structure.positions
        self._all: Part = part
        self._levels: NDArray[np.int8] | None = None
        self._batch: Batch = {}

    def holds(self, structure: Structure) -> bool:
        """Return whether no other pair can be within the cutoff: no atom has crossed half a skin.

        A cell that has changed moves distant images without limit, so that nothing holds.
        """
        then = self._then
        if not np.array_equal(structure.cell, then.cell):
            return False
        with np.errstate(over="ignore"):  # of atoms that have been thrown out of the world
            moved = np.square(structure.positions - then.positions).sum(axis=1)
        return bool((moved <= (SKIN / 2) ** 2).all())

    @abstractmethod
    def move(self, positions: Floats) -> tuple[Batch, Domain | None]:
        """Return the inputs for positions of all atoms, (n_atoms, 3) Å."""

    def _are_new(self, lengths: Floats) -> bool:
        """Return whether other pairs than before are edges, or part of angles."""
        graph = self._graph
        levels = (lengths < graph.cutoff).astype(np.int8) + (lengths < (graph.angle_cutoff or 0.0))
        if self._levels is not None and np.array_equal(levels, self._levels):
            return False
        self._levels = levels
        return True

    def _place(self, places: Floats) -> Batch:
        """Return the batch with other positions."""
        like = self._batch["positions"]
        return self._batch | {"positions": torch.from_numpy(places).to(like)}


class _DomainSearch(_Search[Domain]):
    _now: Domain

    def move(self, positions: Floats) -> tuple[Batch, Domain]:
        domain = self._all
        places = (positions + self._offsets)[domain.rows]
        edges = domain.edge_index.numpy(), domain.edge_shift.numpy()
        lengths = compute_lengths(places, self._then.cell, *edges)
        if self._are_new(lengths):
            now = select_edges(domain, lengths < self._graph.cutoff)
            if self._graph.angle_cutoff is not None:
                now = add_bonds(now, self._graph.angle_cutoff, places)
            self._batch = move_to_device(now.make_batch(places, self._dtype), self._device)
            self._now = now.to(self._device)
        return self._place(places), self._now


class _RegionSearch(_Search[Region]):
    def move(self, positions: Floats) -> tuple[Batch, None]:
        region, places = self._all, positions + self._offsets
        local = places[region.rows]
        lengths = compute_lengths(local, self._then.cell, region.edge_index, region.edge_shift)
        if self._are_new(lengths):
            near = lengths < self._graph.cutoff
            now = replace(
                region,
                structure=replace(region.structure, positions=places),
                edge_index=region.edge_index[near],
                edge_shift=region.edge_shift[near],
            )
            self._batch = move_to_device(collate_region(now, self._dtype), self._device)
        return self._place(local), None
