"""Domains: one structure over several ranks.

A rank owns atoms, and all edges whose receiver it owns. Its local rows of atoms are own ones, then
the halo: senders that other ranks own. Each edge has its reverse in the graph, so that the edges of
own atoms say all: which senders belong to other ranks, which own atoms other ranks need, and which
edges have their reverse there. No rank needs more of the graph than that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline_core.batch import Batch
from pipeline_core.graphs import find_reverse_edges
from pipeline_core.neighbours import find_edges
from pipeline_core.structure import Structure
from pipeline_core.task import Samples
from pipeline_kernels.halo import HaloPlan, Transport
from pipeline_kernels.message import Segments

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Domain:
    """The part of one structure that a rank owns, with its halo.

    Attributes:
        structure: All atoms.
        atoms: Plan of the atoms, without edges: `exchange` appends the halo to own rows.
        edge_index: Local rows of receiver and sender of each own edge, (n_edges, 2), sorted by
            receiver, sender and shift in the structure.
        edge_shift: (n_edges, 3)
        edges: Plan of the edges: `exchange` appends the reverse of boundary edges, which other
            ranks own.
        reverse_edge: Row of the reverse of each edge among own edges and, behind them, those that
            `edges` appends, (n_edges,).
        transport: What carries the messages.
    """

    structure: Structure
    atoms: HaloPlan
    edge_index: Tensor
    edge_shift: Tensor
    edges: HaloPlan
    reverse_edge: Tensor
    transport: Transport

    @property
    def n_own(self) -> int:
        """Own atoms."""
        return self.atoms.n_own

    @property
    def n_edges(self) -> int:
        """Edges of own atoms."""
        return len(self.edge_index)

    @cached_property
    def rows(self) -> Ints:
        """Number in the structure of each local row, own ones rising, (n_own + n_halo,)."""
        rows: Ints = torch.cat([self.atoms.own, self.atoms.halo]).cpu().numpy()
        return rows

    @cached_property
    def interior(self) -> Tensor:
        """Edges whose sender is an own atom, (n_interior,)."""
        return (self.edge_index[:, 1] < self.n_own).nonzero().flatten()

    @cached_property
    def boundary(self) -> Tensor:
        """Edges whose sender is in the halo, (n_boundary,)."""
        return (self.edge_index[:, 1] >= self.n_own).nonzero().flatten()

    @cached_property
    def order(self) -> Tensor:
        """Place of each edge among the interior ones followed by the boundary ones, (n_edges,)."""
        return torch.cat([self.interior, self.boundary]).argsort()

    def make_inputs(self) -> dict[str, NDArray[Any]]:
        """Return atoms of all local rows, own edges and the cell as fields of a sample."""
        atoms = self.structure
        return {
            "atomic_numbers": atoms.atomic_numbers[self.rows],
            "positions": atoms.positions[self.rows],
            "cell": atoms.cell,
            "pbc": atoms.pbc,
            "edge_index": self.edge_index.cpu().numpy(),
            "edge_shift": self.edge_shift.cpu().numpy(),
        }

    def to(self, device: torch.device | str) -> Self:
        """Return the same domain on another device."""
        names = ("atoms", "edge_index", "edge_shift", "edges", "reverse_edge")
        return replace(self, **{name: getattr(self, name).to(device) for name in names})


@runtime_checkable
class DomainSamples(Samples, Protocol):
    """Samples of a model that takes a domain: `module(batch, domain)`."""

    def read_structure(self, index: int) -> Structure:
        """Return the atoms of a sample."""
        ...

    def read_domain(self, index: int, domain: Domain) -> Batch:
        """Return what a rank needs of a sample: `domain.make_inputs()`, and labels of its own rows.

        Called ahead of time on another thread, without communication.
        """
        ...


def build_domain(structure: Structure, cutoff: float, owners: Ints, transport: Transport) -> Domain:
    """Build the domain of one rank, without communication.

    Ranks that call this with the same structure and owners get domains that fit each other.

    Args:
        structure: All atoms.
        cutoff: Longest edge, Å.
        owners: The rank that owns each atom, (n_atoms,), as from `choose_owners`.
        transport: Says which rank this is, and carries its messages.
    """
    rank, own = transport.rank, np.flatnonzero(owners == transport.rank)
    index, shift = find_edges(structure, cutoff, own)
    boundary = np.flatnonzero(owners[index[:, 1]] != rank)
    plan_edges = np.concatenate([index, index[boundary][:, ::-1]])  # others own the reverse ones
    atoms = HaloPlan.of(
        torch.from_numpy(owners), torch.from_numpy(plan_edges), rank, transport.size
    )
    atoms = replace(atoms, edges=atoms.edges[:0], edge_ids=atoms.edge_ids[:0], n_interior=0)
    reverse_edge, edges = _plan_reverse_edges(index, shift, boundary, owners, transport)
    local = np.full(len(owners), -1, dtype=np.int64)
    rows = torch.cat([atoms.own, atoms.halo]).numpy()
    local[rows] = np.arange(len(rows))
    return Domain(
        structure=structure,
        atoms=atoms,
        edge_index=torch.from_numpy(local[index]),
        edge_shift=torch.from_numpy(shift),
        edges=edges,
        reverse_edge=torch.from_numpy(reverse_edge),
        transport=transport,
    )


def build_domains(
    structures: Sequence[Structure], cutoff: float, owners: Sequence[Ints], transport: Transport
) -> list[Domain]:
    """Build the domain of one rank in each structure; see `build_domain`."""
    pairs = zip(structures, owners, strict=True)
    return [build_domain(structure, cutoff, own, transport) for structure, own in pairs]


def _plan_reverse_edges(
    index: Ints, shift: Ints, boundary: Ints, owners: Ints, transport: Transport
) -> tuple[Ints, HaloPlan]:
    """Find the reverse of each edge, and plan the exchange of those that other ranks own.

    A rank sends to each other one the edges whose sender that one owns, in its own order.

    Returns:
        The field `reverse_edge` of a domain, and its plan `edges`.
    """
    n_edges, reverse_edge = len(index), np.empty(len(index), dtype=np.int64)
    interior = np.setdiff1d(np.arange(n_edges), boundary, assume_unique=True)
    reverse_edge[interior] = interior[find_reverse_edges(index[interior], shift[interior])]
    (i, j), back = index[boundary].T, -shift[boundary]
    peers = owners[j]
    arrival = np.lexsort([back[:, 2], back[:, 1], back[:, 0], i, j, peers])
    reverse_edge[boundary[arrival]] = n_edges + np.arange(len(boundary))
    sent = boundary[np.argsort(peers, kind="stable")]
    ranks, counts = np.unique(peers, return_counts=True)
    messages = dict(zip(ranks.tolist(), counts.tolist(), strict=True))
    own = torch.arange(n_edges)
    plan = HaloPlan(
        rank=transport.rank,
        n_parts=transport.size,
        own=own,
        halo=torch.from_numpy(sent),  # as many come as go
        send=Segments.of(torch.from_numpy(sent), n_edges),
        sends=messages,
        receives=messages,
        edges=own.new_zeros(0, 2),
        edge_ids=own[:0],
        n_interior=0,
    )
    return reverse_edge, plan
